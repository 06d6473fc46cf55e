// The timeline: rows, drawing, and everything the mouse, fingers and keys do to it.

const RULER = 26;
const L = {rows: [], total: 0, width: 0, height: 0, gutter: 0, scale: 1};  // layout in CSS pixels
const drawn = {boxes: 0, ms: 0};

// Rows of ranks, each with parts: a computation part, and thin ones for communication.
function layout() {
  L.scale = window.devicePixelRatio || 1;
  L.width = Math.max(200, $("view").clientWidth);
  L.gutter = phone() ? 34 : S.streams ? 150 : D.stagesOf.some((s) => s.length) && D.ranks <= 32 ? 92 : 64;
  L.rows = [];
  let y = 0;
  const room = phone() ? 340 : 440;
  const pitch = clamp(room / Math.max(D.ranks, 1), 5, 60);
  for (let rank = 0; rank < D.ranks; ++rank) {
    const row = {rank, y, parts: []};
    y = S.streams ? expandedParts(row, y) : foldedParts(row, y, pitch);
    row.h = y - row.y;
    L.rows.push(row);
  }
  L.total = y;
  L.height = RULER + Math.min(L.total, phone() ? 420 : 560);
  S.scroll = clamp(S.scroll, 0, Math.max(0, L.total - (L.height - RULER)));
  for (const canvas of [$("raster"), $("overlay")]) {
    canvas.width = Math.round(L.width * L.scale);
    canvas.height = Math.round(L.height * L.scale);
    canvas.style.height = `${L.height}px`;
  }
  $("view").style.height = `${L.height}px`;
}

function foldedParts(row, y, pitch) {
  const of = (kind) => D.byRank[row.rank].filter((lane) => lane.kind === kind);
  const talk = pitch >= 20;
  const gap = pitch >= 30 ? 9 : pitch >= 14 ? 4 : 1;
  const bar = talk ? Math.round(clamp(pitch * 0.1, 2, 5)) : 0;
  const h = Math.max(3, Math.round(pitch - gap - (talk ? 2 * bar + 2 : 0)));
  row.parts.push({lanes: of("compute"), y, h, boxes: true});
  if (talk) {
    row.parts.push({lanes: of("send"), y: y + h + 1, h: bar});
    row.parts.push({lanes: of("recv"), y: y + h + 1 + bar, h: bar});
    row.parts.push({lanes: of("collective"), y: y + h + 1, h: 2 * bar, over: true});
  }
  return y + h + gap + (talk ? 2 * bar + 2 : 0);
}

function expandedParts(row, y) {
  row.parts.push({lanes: D.byRank[row.rank].filter((lane) => lane.kind === "compute"), y, h: 26, boxes: true, name: "compute"});
  y += 28;
  const groups = new Map();
  for (const lane of D.byRank[row.rank]) {
    if (lane.kind === "compute") continue;
    const name = lane.kind === "collective" ? streamName(lane) : `${lane.kind} · ${streamName(lane)}`;
    if (!groups.has(name)) groups.set(name, []);
    groups.get(name).push(lane);
  }
  for (const [name, lanes] of groups) {
    row.parts.push({lanes, y, h: 11, name});
    y += 13;
  }
  return y + 8;
}

const timeAt = (x) => S.t0 + (x - L.gutter) / (L.width - L.gutter) * (S.t1 - S.t0);
const xAt = (t) => L.gutter + (t - S.t0) / (S.t1 - S.t0) * (L.width - L.gutter);
const visible = (part) => part.y + part.h > S.scroll && part.y < S.scroll + L.height - RULER;

function draw() {
  const began = performance.now();
  const canvas = $("raster"), pen = canvas.getContext("2d");
  const image = pen.createImageData(canvas.width, canvas.height);
  const pixels = new Uint32Array(image.data.buffer);
  pixels.fill(P.back);
  const x0 = Math.round(L.gutter * L.scale), line = new Line(canvas.width - x0);
  const k = line.width / (S.t1 - S.t0);
  drawn.boxes = 0;
  for (const row of L.rows) {
    for (const part of row.parts) {
      if (!visible(part)) continue;
      const y0 = Math.max(Math.round((RULER + part.y - S.scroll) * L.scale), Math.round(RULER * L.scale));
      const y1 = Math.min(Math.round((RULER + part.y + part.h - S.scroll) * L.scale), canvas.height);
      if (part.over && !part.lanes.length) continue;
      line.clear(part.boxes || S.streams ? P.lane : P.back);
      for (const lane of part.lanes) {
        const first = firstAbove(D.end, lane.begin, lane.end, S.t0);
        drawn.boxes += paintLane(line, lane, S.t0, S.t1, k, S.critical) - first;
      }
      line.finish();
      if (part.over) {
        overlayLine(pixels, canvas.width, line, x0, y0, y1);
      } else {
        copyLine(pixels, canvas.width, line, x0, y0, y1, part.boxes && part.h >= 8);
      }
    }
  }
  pen.putImageData(image, 0, 0);
  drawLabels(pen);
  drawRuler(pen);
  drawGutter(pen);
  drawMini();
  drawOverlay();
  $("status").textContent = `${duration(S.t1 - S.t0)} visible of ${duration(span()[1] - span()[0])}, ${drawn.boxes} boxes`;
  drawn.ms = performance.now() - began;
  root.dataset.frame = drawn.ms.toFixed(1);
  if ($("twin").open) drawTwin();
}

// Collectives lie over the two halves for send and receive, and leave alone what they do not cover.
function overlayLine(pixels, width, line, x0, y0, y1) {
  for (let x = 0; x < line.width; ++x) {
    if (line.fill[x] === P.back) continue;
    for (let y = y0; y < y1; ++y) pixels[y * width + x0 + x] = line.fill[x];
  }
}

// Kind letters only where all boxes have room for them, so that neighbours do not differ.
function drawLabels(pen) {
  const table = paletteTable(), k = (L.width - L.gutter) / (S.t1 - S.t0);
  let shortest = Infinity;
  const parts = L.rows.flatMap((row) => row.parts.filter((p) => p.boxes && p.h >= 12 && visible(p)));
  const each = (f) => {
    for (const part of parts) {
      for (const lane of part.lanes) {
        const first = firstAbove(D.end, lane.begin, lane.end, S.t0), stop = firstAbove(D.start, first, lane.end, S.t1);
        if (stop - first > L.width / 4) continue;
        for (let i = first; i < stop; ++i) f(i, part);
      }
    }
  };
  each((i) => { if (isPipeline(i) && D.end[i] > D.start[i]) shortest = Math.min(shortest, D.end[i] - D.start[i]); });
  const letters = shortest * k >= 34;
  each((i, part) => {
    if (D.mb[i] < 0 && D.kind[i] !== OTHER) return;
    const a = Math.max(xAt(D.start[i]), L.gutter), b = Math.min(xAt(D.end[i]), L.width);
    const text = D.kind[i] === OTHER ? "OPT" : letters ? KINDS[D.kind[i]] + D.mb[i] : String(D.mb[i]);
    const at = D.kind[i] * 256 + D.chunk[i];
    if (S.critical && !D.onPath[i]) return;
    // The largest size that fits; none below what can be read.
    const sizes = part.h >= 18 ? [12.5, 10.5, 9] : [10, 9];
    const glyph = sizes.map((size) => labelImage(text, table.ink[at], size, L.scale)).find((g) => g.width / L.scale <= b - a);
    if (!glyph) return;
    const w = glyph.width / L.scale;
    const y = RULER + part.y - S.scroll + (part.h - glyph.height / L.scale) / 2;
    if (y < RULER - 4) return;
    pen.drawImage(glyph, Math.round((a + (b - a - w) / 2) * L.scale), Math.round(y * L.scale));
    if (D.chunks > 1 && part.h >= 24 && b - a >= w + 26) {
      const corner = labelImage(`c${D.chunk[i]}`, table.ink[at], 9, L.scale);
      pen.drawImage(corner, Math.round((b - 3) * L.scale - corner.width), Math.round((RULER + part.y - S.scroll + part.h - 13) * L.scale));
    }
  });
}

function ticks(from, to, most) {
  const rough = (to - from) / most;
  const power = 10 ** Math.floor(Math.log10(Math.max(rough, 1e-9)));
  const step = [1, 2, 5, 10].map((m) => m * power).find((s) => s >= rough) || rough;
  const list = [];
  for (let t = Math.ceil(from / step) * step; t <= to; t += step) list.push(t);
  return {list, step};
}

function tickText(t, step) {
  const a = Math.max(Math.abs(t), step);
  const [unit, name] = a < 1e3 ? [1, "ns"] : a < 1e6 ? [1e3, "µs"] : a < 1e9 ? [1e6, "ms"] : [1e9, "s"];
  const digits = clamp(Math.ceil(-Math.log10(step / unit) - 1e-9), 0, 4);
  return t === 0 ? "0" : `${(t / unit).toFixed(digits)} ${name}`;
}

function drawRuler(pen) {
  pen.save();
  pen.scale(L.scale, L.scale);
  pen.font = '11.5px system-ui, "Segoe UI", Roboto, Helvetica, Arial, sans-serif';
  pen.textBaseline = "middle";
  // Within one step, time counts from the step's begin.
  const origin = S.step >= 0 && D.steps.length ? D.steps[S.step].begin : 0;
  const {list, step} = ticks(S.t0 - origin, S.t1 - origin, Math.max(2, (L.width - L.gutter) / 105));
  pen.strokeStyle = P.grid;
  pen.fillStyle = P.muted;
  for (const t of list) {
    const x = Math.round(xAt(t + origin)) + 0.5;
    pen.beginPath();
    pen.moveTo(x, 19);
    pen.lineTo(x, RULER);
    pen.stroke();
    const text = tickText(t, step), w = pen.measureText(text).width;
    pen.fillText(text, clamp(x - w / 2, L.gutter, L.width - w), 10);
  }
  pen.strokeStyle = P.mark;
  pen.setLineDash([3, 3]);
  for (const s of D.steps) {
    const x = Math.round(xAt(s.begin)) + 0.5;
    if (x < L.gutter || x > L.width || D.steps.length < 2 || S.step >= 0 && s === D.steps[S.step] && x <= L.gutter + 1) continue;
    pen.beginPath();
    pen.moveTo(x, 19);
    pen.lineTo(x, L.height);
    pen.globalAlpha = 0.45;
    pen.stroke();
    pen.globalAlpha = 1;
  }
  pen.restore();
}

function drawGutter(pen) {
  pen.save();
  pen.scale(L.scale, L.scale);
  pen.fillStyle = `rgb(${P.card.join(",")})`;
  pen.fillRect(0, 0, L.gutter, L.height);
  pen.beginPath();
  pen.rect(0, RULER - 8, L.gutter, L.height);
  pen.clip();
  pen.textBaseline = "middle";
  const every = Math.max(1, Math.ceil(13 / Math.max(1, L.total / Math.max(1, D.ranks))));
  for (const row of L.rows) {
    if (row.rank % every !== 0) continue;
    const main = row.parts[0], y = RULER + main.y - S.scroll + main.h / 2;
    const stages = D.stagesOf[row.rank];
    const two = !phone() && main.h >= 28 && stages.length > 0 && !S.streams;
    pen.fillStyle = P.ink;
    pen.font = '12.5px system-ui, "Segoe UI", Roboto, Helvetica, Arial, sans-serif';
    pen.fillText(phone() ? String(row.rank) : `rank ${row.rank}`, 2, two ? y - 7 : y);
    pen.fillStyle = P.muted;
    pen.font = '10.5px system-ui, "Segoe UI", Roboto, Helvetica, Arial, sans-serif';
    if (two) pen.fillText(`stage${stages.length > 1 ? "s" : ""} ${stages.length > 3 ? `${stages[0]} … ${stages[stages.length - 1]}` : stages.join(", ")}`, 2, y + 8);
    if (S.streams && !phone()) {
      for (const part of row.parts.slice(1)) pen.fillText(part.name, 12, RULER + part.y - S.scroll + part.h / 2);
    }
  }
  pen.restore();
}

// --- overview of the whole run -----------------------------------------------------------------------------------------

let miniImage = null, miniKey = "";

function drawMini() {
  const canvas = $("mini"), w = Math.round(L.width * L.scale), h = Math.round(44 * L.scale);
  const key = `${w} ${root.dataset.theme} ${S.step}`;
  const pen = canvas.getContext("2d");
  const [from, to] = miniSpan();
  if (key !== miniKey) {
    canvas.width = w;
    canvas.height = h;
    miniImage = pen.createImageData(w, h);
    const pixels = new Uint32Array(miniImage.data.buffer), line = new Line(w);
    pixels.fill(P.lane);
    const rows = Math.min(D.ranks, Math.floor(h / 2));
    for (let r = 0; r < rows; ++r) {
      const rank = Math.floor(r * D.ranks / rows);
      line.clear(P.lane);
      for (const lane of D.byRank[rank]) if (lane.kind === "compute") paintLane(line, lane, from, to, w / (to - from), false);
      line.finish();
      line.hatched.length = 0;
      const y0 = Math.round(r * h / rows), y1 = Math.max(y0 + 1, Math.round((r + 1) * h / rows) - (h / rows >= 4 ? 1 : 0));
      copyLine(pixels, w, line, 0, y0, y1, false);
    }
    miniKey = key;
  }
  pen.putImageData(miniImage, 0, 0);
  const a = clamp((S.t0 - from) / (to - from), 0, 1) * w, b = clamp((S.t1 - from) / (to - from), 0, 1) * w;
  pen.fillStyle = root.dataset.theme === "dark" ? "#000a" : "#fffb";
  pen.fillRect(0, 0, a, h);
  pen.fillRect(b, 0, w - b, h);
  pen.strokeStyle = P.mark;
  pen.lineWidth = 1.5 * L.scale;
  pen.strokeRect(a + 1, 1, Math.max(b - a - 2, 3), h - 2);
}

// The run; with many steps, the neighbourhood of the chosen one, where a step still has a width.
function miniSpan() {
  const first = D.first, last = Math.max(D.last, D.first + 1);
  if (S.step < 0 || D.steps.length <= 12) return [first, last];
  const from = D.steps[Math.max(0, S.step - 4)].begin;
  return [from, Math.max(D.steps[Math.min(D.steps.length - 1, S.step + 4)].end, from + 1)];
}
