// Words about events: tooltip, the panel under the timeline, why a gap is there, find, the table twin.

function describe(i) {
  const name = eventName(i);
  return isPipeline(i) ? `${name} of stage ${stageOf(i)}` : D.mb[i] < 0 ? D.labels[D.label[i]].spoken : name;
}

const link = (i) => `<button class="link" data-event="${i}">${escapeHtml(describe(i))}</button>`;

function eventTip(i) {
  const lines = [`rank ${rankOf(i)} · ${duration(D.end[i] - D.start[i])}`];
  if (isPipeline(i)) {
    lines.push(`microbatch ${D.mb[i]}, stage ${stageOf(i)}${D.chunks > 1 ? `, chunk ${D.chunk[i]}` : ""}`);
  } else if (!isWork(i)) {
    if (D.ready[i] > D.start[i]) {
      lines.push(`waited ${duration(D.ready[i] - D.start[i])}, then ${duration(D.end[i] - D.ready[i])} of transfer`);
    }
    lines.push(`${D.peer[i] >= 0 ? `${D.kind[i] === SEND ? "to" : "from"} rank ${D.peer[i]}, ` : ""}${bytes(D.labels[D.label[i]].bytes)}`);
  }
  if (D.slack[i] >= 0) lines.push(D.onPath[i] ? "on the critical path" : `slack ${duration(D.slack[i])}`);
  return `<b>${escapeHtml(describe(i))}</b>${lines.map((l) => `<div>${escapeHtml(l)}</div>`).join("")}`;
}

function gapTip(gap) {
  const word = gap.next >= 0 ? waitWord(gap.next) : null;
  const c = gap.next >= 0 ? D.cause[gap.next] : -1;
  const why = !word ? "" : D.kind[c] === COLLECTIVE ? "waits for a collective" :
    `waits for ${D.kind[c] === RECV ? "a message from" : "its send to"} rank ${D.peer[c]}`;
  return `<b>idle ${duration(gap.to - gap.from)}</b><div>rank ${gap.lane.rank}${why ? `, ${why}` : ""}</div>
    <div>click: why?</div>`;
}

// The chain back from event i to the first computation that kept its rank busy without a gap before it.
function whyChain(i) {
  const lines = [];
  let at = i, guard = 0;
  while (at >= 0 && guard++ < 24 && lines.length < 8) {
    const c = D.cause[at];
    if (c < 0) {
      lines.push(`${link(at)} on rank ${rankOf(at)} is where it begins: nothing in the record comes before it.`);
      break;
    }
    const spent = duration(D.end[c] - D.ready[c]);
    if (D.causeKind[at] === 4) {
      lines.push(isP2p(at)
        ? `rank ${rankOf(c)} reached the other end, ${link(c)}, only ${duration(D.start[c] - D.start[at])} later.`
        : `rank ${rankOf(c)} was the last to join ${link(c)}, ${duration(D.start[c] - D.start[at])} after rank ${rankOf(at)}.`);
    } else if (!isWork(c)) {
      const waited = D.ready[c] - D.start[c];
      lines.push(`${link(at)} started after ${link(c)}${D.peer[c] >= 0 ? ` ${D.kind[c] === SEND ? "to" : "from"} rank ${D.peer[c]}` : ""}` +
        `${waited > 0 ? `, which had waited ${duration(waited)} for its other end` : ""} and took ${spent} to transfer.`);
    } else {
      lines.push(`${link(at)} on rank ${rankOf(at)} started after ${link(c)}, which took ${spent}.`);
      const before = D.cause[c];
      // Busy without a gap: from here back, the rank simply had work to do.
      if (before >= 0 && D.laneOf[before] === D.laneOf[c] && D.end[before] >= D.start[c]) {
        lines.push(`rank ${rankOf(c)} was busy without a gap until then.`);
        break;
      }
    }
    at = c;
  }
  return lines;
}

function showDetails() {
  const box = $("details");
  if (S.gap) {
    const gap = S.gap, named = gap.next >= 0 ? ` before ${link(gap.next)}` : "";
    box.innerHTML = `<b>Rank ${gap.lane.rank} is idle for ${duration(gap.to - gap.from)}</b>${named}.` +
      (gap.next >= 0 ? `<ol>${whyChain(gap.next).map((l) => `<li>${l}</li>`).join("")}</ol>`
        : " Nothing of this rank follows in the record.");
  } else if (S.sel >= 0) {
    const i = S.sel;
    const facts = [`rank ${rankOf(i)}`, escapeHtml(streamName(D.lanes[D.laneOf[i]])),
      `${duration(D.start[i] - describedStep().begin)} to ${duration(D.end[i] - describedStep().begin)}`,
      `<b>${duration(D.end[i] - D.start[i])}</b>`];
    if (D.peer[i] >= 0) facts.push(`${D.kind[i] === SEND ? "to" : "from"} rank ${D.peer[i]}`, bytes(D.labels[D.label[i]].bytes));
    if (D.slack[i] >= 0) facts.push(D.onPath[i] ? "on the critical path" : `slack ${duration(D.slack[i])}`);
    if (D.match[i] >= 0) facts.push(`other end: ${link(D.match[i])}`);
    box.innerHTML = `<b>${escapeHtml(describe(i))}</b> · ${facts.join(" · ")}` +
      `<ol>${whyChain(i).map((l) => `<li>${l}</li>`).join("")}</ol>`;
  } else {
    const keys = phone() ? "" : " Press <kbd>?</kbd> for keys.";
    box.innerHTML = `<span class="muted">Click a box for what it is and what it waited for, or a gap for why it is there.${keys}</span>`;
  }
  for (const button of box.querySelectorAll("[data-event]")) button.onclick = () => select(+button.dataset.event);
}

// --- find: "F12@3", "rank:3 kind:W mb>10 stage:2 step:1" -----------------------------------------------------------------

function parseQuery(text) {
  const tests = [];
  for (const word of text.trim().split(/\s+/).filter(Boolean)) {
    const action = /^([A-Za-z_-]+?)(\d+)?(?:@(\d+))?$/.exec(word);
    const field = /^(rank|mb|stage|step|chunk)(:|=|<|>)(\d+)$/i.exec(word);
    const kind = /^kind[:=]([A-Za-z]+)$/i.exec(word);
    if (field) {
      const n = +field[3], op = field[2];
      const value = {rank: rankOf, mb: (i) => D.mb[i], stage: stageOf, step: (i) => D.step[i], chunk: (i) => D.chunk[i]}[field[1].toLowerCase()];
      tests.push((i) => (op === "<" ? value(i) < n : op === ">" ? value(i) > n : value(i) === n));
    } else if (kind || action) {
      const name = (kind ? kind[1] : action[1]).toUpperCase();
      tests.push((i) => KINDS[D.kind[i]] === name || D.labels[D.label[i]].name.toUpperCase() === name);
      if (action && action[2] !== undefined) tests.push((i) => D.mb[i] === +action[2]);
      if (action && action[3] !== undefined) tests.push((i) => rankOf(i) === +action[3]);
    } else {
      return null;
    }
  }
  return tests.length ? (i) => tests.every((t) => t(i)) : null;
}

let finding = {text: "", matches: [], at: -1};

// Matches of the whole run in time order, those of the chosen step first.
function findNext(by) {
  const text = $("find").value;
  if (text !== finding.text) {
    const test = parseQuery(text), matches = [];
    if (test) for (let i = 0; i < D.count; ++i) if (test(i)) matches.push(i);
    const [from, to] = span();
    const inside = (i) => (D.start[i] >= from && D.end[i] <= to ? 0 : 1);
    matches.sort((a, b) => inside(a) - inside(b) || D.start[a] - D.start[b] || a - b);
    finding = {text, matches, at: -1};
  }
  const n = finding.matches.length;
  if (by !== 0 && n) {
    finding.at = (finding.at + by + n) % n;
    select(finding.matches[finding.at]);
  }
  $("found").textContent = !text ? "" : n ? `${finding.at >= 0 ? `${finding.at + 1}/` : ""}${n}` : "none";
}

// --- the same facts as text ------------------------------------------------------------------------------------------

function drawTwin() {
  if (!$("twin").open) return;
  const most = 400, rows = [];
  let more = 0;
  for (const row of L.rows) {
    for (const lane of row.parts.flatMap((p) => p.lanes)) {
      let i = firstAbove(D.end, lane.begin, lane.end, S.t0);
      for (; i < lane.end && D.start[i] < S.t1; ++i) {
        if (rows.length >= most) { ++more; continue; }
        rows.push(`<tr><th scope="row">${lane.rank}</th><td>${escapeHtml(streamName(lane))}</td><td>${escapeHtml(describe(i))}</td>
          <td class="num">${duration(D.start[i])}</td><td class="num">${duration(D.end[i] - D.start[i])}</td>
          <td class="num">${D.slack[i] >= 0 ? duration(D.slack[i]) : "–"}</td></tr>`);
      }
    }
  }
  $("twintable").innerHTML = `<table><thead><tr><th>rank<th>stream<th>what<th class="num">start<th class="num">duration
    <th class="num">slack</tr></thead><tbody>${rows.join("")}</tbody></table>${more ? `<p class="muted">and ${more} more: zoom in</p>` : ""}`;
}

// On paper, the timeline is an image of what is on screen, on light ground.
let themeBeforePrint = null;
function preparePrint() {
  themeBeforePrint = root.dataset.theme;
  setTheme("light");
  const both = document.createElement("canvas");
  both.width = $("raster").width;
  both.height = $("raster").height;
  const pen = both.getContext("2d");
  pen.drawImage($("raster"), 0, 0);
  pen.drawImage($("overlay"), 0, 0);
  $("printed").src = both.toDataURL();
  $("printed").hidden = false;
}

function finishPrint() {
  $("printed").hidden = true;
  if (themeBeforePrint) setTheme(themeBeforePrint);
  themeBeforePrint = null;
}
