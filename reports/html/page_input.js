// Mouse, fingers and keys on the timeline.

let drag = null;             // {x, y, t0, t1, scroll, moved, range}
const fingers = new Map();   // pointers on the view, for pinching

function listenToTimeline() {
  const view = $("view");
  view.addEventListener("pointerdown", pointerDown);
  view.addEventListener("pointermove", pointerMove);
  view.addEventListener("pointerup", pointerUp);
  view.addEventListener("pointercancel", (e) => { fingers.delete(e.pointerId); drag = null; });
  view.addEventListener("pointerleave", () => { S.hover = -1; $("tip").hidden = true; drawOverlay(); });
  view.addEventListener("wheel", wheel, {passive: false});
  view.addEventListener("dblclick", zoomToSelection);
  addEventListener("keydown", key);
  listenToMini();
  $("zoomin").onclick = () => zoom(0.6);
  $("zoomout").onclick = () => zoom(1 / 0.6);
  $("fit").onclick = fit;
  for (const name of ["critical", "gaps", "streams"]) $(name).onclick = () => toggle(name);
  $("find").addEventListener("keydown", (e) => { if (e.key === "Enter") { findNext(e.shiftKey ? -1 : 1); e.preventDefault(); } });
  $("find").addEventListener("input", () => findNext(0));
  $("twin").addEventListener("toggle", drawTwin);
}

function toggle(name) {
  S[name] = !S[name];
  $(name).setAttribute("aria-pressed", S[name]);
  layout();
  draw();
  saveHash();
}

function setWindow(t0, t1) {
  // Not beyond the run by more than a tenth of what is visible, nor closer than 20 ns.
  const length = clamp(t1 - t0, 20, Math.max(20, (D.last - D.first) * 1.2));
  const margin = length * 0.1;
  S.t0 = clamp(t0, D.first - margin, Math.max(D.first - margin, D.last + margin - length));
  S.t1 = S.t0 + length;
  schedule();
  saveHash();
}

// At most one drawing a frame, however many events arrive.
let scheduled = false;
function schedule() {
  if (scheduled) return;
  scheduled = true;
  requestAnimationFrame(() => { scheduled = false; draw(); });
}

function zoom(factor, at = (S.t0 + S.t1) / 2) { setWindow(at - (at - S.t0) * factor, at + (S.t1 - at) * factor); }
function pan(share) { const by = (S.t1 - S.t0) * share; setWindow(S.t0 + by, S.t1 + by); }
function fit() { setWindow(...span()); }

function zoomToSelection() {
  if (S.sel < 0) return;
  const length = Math.max(D.end[S.sel] - D.start[S.sel], 1);
  setWindow(D.start[S.sel] - 3 * length, D.end[S.sel] + 3 * length);
}

const place = (e) => {
  const box = $("view").getBoundingClientRect();
  return {x: e.clientX - box.left, y: e.clientY - box.top};
};

function pointerDown(e) {
  if (e.button > 0) return;
  $("view").setPointerCapture(e.pointerId);
  const {x, y} = place(e);
  fingers.set(e.pointerId, {x, y});
  drag = {x, y, t0: S.t0, t1: S.t1, scroll: S.scroll, moved: false, range: e.shiftKey, spread: spread()};
}

function spread() {
  if (fingers.size < 2) return null;
  const [a, b] = [...fingers.values()];
  return {length: Math.max(20, Math.abs(a.x - b.x)), middle: (a.x + b.x) / 2};
}

function pointerMove(e) {
  const {x, y} = place(e);
  if (fingers.has(e.pointerId)) fingers.set(e.pointerId, {x, y});
  if (!drag) return hover(x, y);
  if (fingers.size >= 2) return pinch();
  if (Math.abs(x - drag.x) + Math.abs(y - drag.y) > 4) drag.moved = true;
  if (!drag.moved) return;
  $("tip").hidden = true;
  if (drag.range) {
    drag.to = x;
    drawOverlay();
    return;
  }
  const by = (drag.x - x) / (L.width - L.gutter) * (drag.t1 - drag.t0);
  if (e.pointerType === "mouse") S.scroll = clamp(drag.scroll + drag.y - y, 0, Math.max(0, L.total - (L.height - RULER)));
  setWindow(drag.t0 + by, drag.t1 + by);
}

function pinch() {
  const now = spread(), before = drag.spread;
  drag.moved = true;
  if (!before) { drag.spread = now; drag.t0 = S.t0; drag.t1 = S.t1; return; }
  const length = (drag.t1 - drag.t0) * before.length / now.length;
  const at = drag.t0 + (before.middle - L.gutter) / (L.width - L.gutter) * (drag.t1 - drag.t0);
  const t0 = at - (now.middle - L.gutter) / (L.width - L.gutter) * length;
  setWindow(t0, t0 + length);
}

function pointerUp(e) {
  fingers.delete(e.pointerId);
  if (!drag) return;
  const was = drag;
  drag = fingers.size ? {...was, spread: null} : null;
  if (was.range && was.to !== undefined && Math.abs(was.to - was.x) > 4) {
    setWindow(timeAt(Math.min(was.x, was.to)), timeAt(Math.max(was.x, was.to)));
  } else if (!was.moved) {
    click(was.x, was.y);
  }
}

function wheel(e) {
  const focused = document.activeElement === $("view");
  const sideways = Math.abs(e.deltaX) > Math.abs(e.deltaY) || e.shiftKey;
  if (sideways) {
    e.preventDefault();
    return pan((e.deltaX || e.deltaY) / (L.width - L.gutter));
  }
  if (!e.ctrlKey && !e.metaKey && !focused) return;  // the page scrolls
  e.preventDefault();
  zoom(Math.exp(clamp(e.deltaY, -200, 200) * 0.0022), timeAt(Math.max(place(e).x, L.gutter)));
}

function listenToMini() {
  const mini = $("mini");
  let grab = null;
  const timeOf = (e) => {
    const box = mini.getBoundingClientRect(), [from, to] = miniSpan();
    return from + (e.clientX - box.left) / box.width * (to - from);
  };
  mini.addEventListener("pointerdown", (e) => {
    mini.setPointerCapture(e.pointerId);
    const t = timeOf(e), half = (S.t1 - S.t0) / 2;
    grab = t >= S.t0 && t <= S.t1 ? t - S.t0 : half;
    setWindow(t - grab, t - grab + 2 * half);
  });
  mini.addEventListener("pointermove", (e) => {
    if (grab === null) return;
    const t = timeOf(e) - grab;
    setWindow(t, t + S.t1 - S.t0);
  });
  mini.addEventListener("pointerup", () => { grab = null; });
}

function key(e) {
  if (e.ctrlKey || e.metaKey || e.altKey || $("keys").open) return;
  const typing = /^(INPUT|SELECT|TEXTAREA)$/.test(document.activeElement.tagName);
  if (typing) {
    if (e.key === "Escape") document.activeElement.blur();
    return;
  }
  const actions = {
    w: () => zoom(0.7), s: () => zoom(1 / 0.7), a: () => pan(-0.2), d: () => pan(0.2), 0: fit, f: zoomToSelection,
    ArrowLeft: () => step(-1), ArrowRight: () => step(1), ArrowUp: () => changeRank(-1), ArrowDown: () => changeRank(1),
    "[": () => goToStep(S.step - 1), "]": () => goToStep(S.step + 1), "/": () => $("find").focus(),
    c: () => toggle("critical"), b: () => toggle("gaps"), v: () => toggle("streams"), l: toggleTheme, "?": showKeys,
    e: () => { if (S.sel >= 0 && D.cause[S.sel] >= 0) select(D.cause[S.sel]); },
    Escape: () => { S.sel = -1; S.gap = null; showDetails(); drawOverlay(); saveHash(); },
  };
  const arrows = e.key.startsWith("Arrow");
  // Arrows scroll the page unless the timeline has the focus.
  if (!actions[e.key] || (arrows && document.activeElement !== $("view"))) return;
  e.preventDefault();
  actions[e.key]();
}

function step(by) {
  if (S.sel < 0) return selectNear(S.t0);
  const lane = D.lanes[D.laneOf[S.sel]];
  select(clamp(S.sel + by, lane.begin, lane.end - 1));
}

function changeRank(by) {
  const from = S.sel < 0 ? -1 : rankOf(S.sel);
  const rank = clamp(from + by, 0, D.ranks - 1);
  selectNear(S.sel < 0 ? S.t0 : D.start[S.sel], rank);
}

function selectNear(t, rank = 0) {
  const lane = D.byRank[rank] && D.byRank[rank].find((l) => l.kind === "compute");
  if (lane && lane.count) select(Math.min(firstAbove(D.end, lane.begin, lane.end, t), lane.end - 1));
}

// Selects an event and brings it into view.
function select(i) {
  S.sel = i;
  S.gap = null;
  const length = S.t1 - S.t0;
  if (D.end[i] < S.t0 || D.start[i] > S.t1) {
    setWindow((D.start[i] + D.end[i]) / 2 - length / 2, (D.start[i] + D.end[i]) / 2 + length / 2);
  }
  const row = L.rows[rankOf(i)], room = L.height - RULER;
  if (row && (row.y < S.scroll || row.y + row.h > S.scroll + room)) {
    S.scroll = clamp(row.y - room / 2, 0, Math.max(0, L.total - room));
    schedule();
  }
  showDetails();
  drawOverlay();
  saveHash();
}

// What is at a point: an event, or a gap between two computations of a rank.
function hit(x, y) {
  if (x < L.gutter || y < RULER) return null;
  const at = y - RULER + S.scroll, t = timeAt(x), slop = 2 * (S.t1 - S.t0) / (L.width - L.gutter);
  const row = L.rows.find((r) => at >= r.y && at < r.y + r.h);
  if (!row) return null;
  let found = null;
  for (const part of row.parts) {
    if (at < part.y - 1 || at > part.y + part.h + 1) continue;
    for (const lane of part.lanes) {
      const i = firstAbove(D.end, lane.begin, lane.end, t - (part.boxes ? 0 : slop));
      if (i < lane.end && D.start[i] <= t + (part.boxes ? 0 : slop)) return {event: i};
      if (part.boxes && !found) found = gapAt(lane, i);
    }
  }
  return found;
}

function gapAt(lane, next) {
  const from = next > lane.begin ? D.end[next - 1] : D.first;
  const to = next < lane.end ? D.start[next] : D.last;
  return to > from ? {gap: {lane, next: next < lane.end ? next : -1, from, to}} : null;
}

function click(x, y) {
  const what = hit(x, y);
  S.sel = what && what.event !== undefined ? what.event : -1;
  S.gap = what && what.gap ? what.gap : null;
  showDetails();
  drawOverlay();
  saveHash();
}

function hover(x, y) {
  const what = hit(x, y), tip = $("tip");
  const event = what && what.event !== undefined ? what.event : -1;
  const changed = event !== S.hover;
  S.hover = event;
  if (!what) {
    tip.hidden = true;
  } else {
    tip.innerHTML = event >= 0 ? eventTip(event) : gapTip(what.gap);
    tip.hidden = false;
    tip.style.left = `${clamp(x + 14, 0, Math.max(0, L.width - tip.offsetWidth - 4))}px`;
    const below = y + 18 + tip.offsetHeight < L.height;
    tip.style.top = `${below ? y + 18 : Math.max(0, y - tip.offsetHeight - 12)}px`;
  }
  if (changed) drawOverlay();
}
