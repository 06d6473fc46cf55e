// What lies over the boxes and changes without painting them again: selection, its arrows, critical path, bubbles.

function drawOverlay() {
  const canvas = $("overlay"), pen = canvas.getContext("2d");
  pen.setTransform(L.scale, 0, 0, L.scale, 0, 0);
  pen.clearRect(0, 0, L.width, L.height);
  pen.save();
  pen.beginPath();
  pen.rect(L.gutter, RULER, L.width - L.gutter, L.height - RULER);
  pen.clip();
  if (S.gaps) drawGaps(pen);
  if (S.critical) drawPathLines(pen);
  if (S.gap) outlineGap(pen, S.gap);
  if (S.sel >= 0) drawSelection(pen, S.sel);
  if (S.hover >= 0 && S.hover !== S.sel) outline(pen, S.hover, 1.5);
  if (drag && drag.range && drag.to !== undefined) {
    pen.fillStyle = P.mark;
    pen.globalAlpha = 0.15;
    pen.fillRect(Math.min(drag.x, drag.to), RULER, Math.abs(drag.to - drag.x), L.height);
  }
  pen.restore();
}

// Where an event is drawn; null when its lane has no part in the present layout.
function boxOf(i) {
  const lane = D.lanes[D.laneOf[i]], row = L.rows[lane.rank];
  const part = row && row.parts.find((p) => p.lanes.includes(lane));
  if (!part) return null;
  const a = xAt(D.start[i]), b = xAt(D.end[i]);
  return {x: a, y: RULER + part.y - S.scroll, w: Math.max(b - a, 1), h: part.h};
}

function outline(pen, i, width) {
  const box = boxOf(i);
  if (!box) return;
  pen.strokeStyle = P.mark;
  pen.lineWidth = width;
  pen.strokeRect(box.x - 0.5, box.y - 0.5, box.w + 1, box.h + 1);
}

function arrow(pen, from, to) {
  const dx = to.x - from.x, dy = to.y - from.y, length = Math.hypot(dx, dy);
  if (length < 6) return;
  const ux = dx / length, uy = dy / length;
  pen.beginPath();
  pen.moveTo(from.x, from.y);
  pen.lineTo(to.x, to.y);
  pen.moveTo(to.x - 7 * ux - 4 * uy, to.y - 7 * uy + 4 * ux);
  pen.lineTo(to.x, to.y);
  pen.lineTo(to.x - 7 * ux + 4 * uy, to.y - 7 * uy - 4 * ux);
  pen.stroke();
}

// Edge points of two boxes towards each other.
function between(a, b) {
  const y = (box, other) => (Math.abs(box.y - other.y) < 1 ? box.y + box.h / 2 : box.y < other.y ? box.y + box.h : box.y);
  return [{x: a.x + a.w, y: y(a, b)}, {x: b.x, y: y(b, a)}];
}

function drawSelection(pen, i) {
  pen.strokeStyle = P.mark;
  pen.lineWidth = 1.5;
  for (const other of new Set([D.cause[i], D.match[i]])) {
    const a = other >= 0 && boxOf(other), b = boxOf(i);
    if (!a || !b) continue;
    outline(pen, other, 1);
    pen.setLineDash(other === D.cause[i] ? [] : [4, 3]);
    const [from, to] = between(a, b);
    if (other === D.cause[i] && D.causeKind[i] === 4) {
      // The other end released this one by starting: from its start to where the waiting ended.
      from.x = a.x;
      to.x = xAt(D.ready[i]);
    }
    arrow(pen, from, to);
    pen.setLineDash([]);
  }
  outline(pen, i, 2.5);
}

function drawPathLines(pen) {
  const steps = S.step >= 0 ? [D.steps[S.step]] : D.steps;
  let count = 0;
  pen.strokeStyle = P.mark;
  for (const step of steps) {
    let before = null;
    if (!step || step.end < S.t0 || step.begin > S.t1) continue;
    for (const i of step.events) {
      if (D.end[i] < S.t0 || D.start[i] > S.t1) { before = null; continue; }
      if (++count > 6000) return;
      const box = boxOf(i);
      if (!box) continue;
      if (isWork(i)) {
        pen.lineWidth = box.w > 6 && box.h >= 8 ? 2 : 1;
        if (box.w > 3) pen.strokeRect(box.x + 0.5, box.y + 0.5, Math.max(box.w - 1, 1), box.h - 1);
        // From computation to computation; the message between them is the slope.
        if (before && rankOf(before.i) !== rankOf(i)) {
          pen.lineWidth = 1.5;
          arrow(pen, ...between(before.box, box));
        }
        before = {i, box};
      }
    }
  }
}

function outlineGap(pen, gap) {
  const part = L.rows[gap.lane.rank].parts[0];
  pen.strokeStyle = P.mark;
  pen.lineWidth = 2;
  pen.setLineDash([4, 3]);
  pen.strokeRect(xAt(gap.from), RULER + part.y - S.scroll + 1, xAt(gap.to) - xAt(gap.from), part.h - 2);
  pen.setLineDash([]);
  if (gap.next >= 0) drawSelection(pen, gap.next);
}

// What a rank waited for before event i, as a short word and a colour.
function waitWord(i) {
  const c = i >= 0 ? D.cause[i] : -1;
  if (c < 0) return null;
  if (D.kind[c] === RECV) return {text: `← rank ${D.peer[c]}`, colour: "--k1"};
  if (D.kind[c] === SEND) return {text: `→ rank ${D.peer[c]}`, colour: "--k3"};
  if (D.kind[c] === COLLECTIVE) return {text: "collective", colour: "--k7"};
  return null;
}

function drawGaps(pen) {
  pen.font = '11px system-ui, "Segoe UI", Roboto, Helvetica, Arial, sans-serif';
  pen.textBaseline = "middle";
  const style = getComputedStyle(root);
  for (const row of L.rows) {
    const part = row.parts[0];
    if (!visible(part)) continue;
    for (const lane of part.lanes) {
      const first = firstAbove(D.end, lane.begin, lane.end, S.t0), stop = firstAbove(D.start, first, lane.end, S.t1);
      if (stop - first > 3000) continue;
      for (let i = first; i <= Math.min(stop, lane.end - 1); ++i) {
        const from = i > lane.begin ? D.end[i - 1] : D.first;
        if (D.start[i] - from <= 0) continue;
        oneGap(pen, style, xAt(Math.max(from, S.t0)), xAt(Math.min(D.start[i], S.t1)), part, waitWord(i));
      }
    }
  }
}

function oneGap(pen, style, a, b, part, word) {
  if (b - a < 2) return;
  const y = RULER + part.y - S.scroll;
  pen.strokeStyle = pen.fillStyle = word ? style.getPropertyValue(word.colour) : P.muted;
  pen.globalAlpha = 0.28;
  pen.fillRect(a, y, b - a, part.h);
  pen.globalAlpha = 1;
  pen.fillRect(a, y + part.h - 2, b - a, 2);
  if (!word || part.h < 12) return;
  const w = pen.measureText(word.text).width;
  pen.fillStyle = P.ink;
  if (w + 6 < b - a) pen.fillText(word.text, (a + b - w) / 2, y + part.h / 2);
}
