// Painting of the timeline: an own buffer of pixels, one line a lane, copied down and put on the canvas at once. Cost grows
// with visible events plus pixels; drawing boxes one by one on the canvas is 10 to 60 times slower at 100,000 of them.

const P = {};  // colours as 0xAABBGGRR, the byte order of ImageData

const parseHex = (text) => {
  const v = text.trim().replace("#", "");
  const full = v.length === 3 ? [...v].map((c) => c + c).join("") : v;
  return [0, 2, 4].map((k) => parseInt(full.slice(k, k + 2), 16));
};
const pack = ([r, g, b]) => ((255 << 24) | (b << 16) | (g << 8) | r) >>> 0;
const mix = (a, b, share) => a.map((c, k) => Math.round(c + (b[k] - c) * share));
const luminance = (rgb) => {
  const [r, g, b] = rgb.map((c) => (c / 255 <= 0.04045 ? c / 255 / 12.92 : ((c / 255 + 0.055) / 1.055) ** 2.4));
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
};

function cssColour(name) { return parseHex(getComputedStyle(root).getPropertyValue(name)); }

// Chunk k of `chunks` is lighter (in the dark theme darker) by steps.
function chunkShare(k, chunks) { return chunks <= 1 ? 0 : 0.55 * Math.min(k, chunks - 1) / Math.max(chunks - 1, 2); }

function readPalette() {
  P.card = cssColour("--card");
  P.lane = pack(cssColour("--lane"));
  P.back = pack(P.card);
  P.towards = cssColour("--towards");
  P.kinds = KINDS.map((_, k) => cssColour(`--k${k}`));
  P.ink = getComputedStyle(root).getPropertyValue("--ink").trim();
  P.muted = getComputedStyle(root).getPropertyValue("--muted").trim();
  P.grid = getComputedStyle(root).getPropertyValue("--grid").trim();
  P.mark = getComputedStyle(root).getPropertyValue("--mark").trim();
  P.bad = getComputedStyle(root).getPropertyValue("--bad").trim();
  P.table = null;
}

const boxColour = (kind, chunk) =>
  mix(P.kinds[kind], P.towards, isPipelineKind(kind) ? chunkShare(chunk, D ? D.chunks : 1) : 0);

// Packed colours by kind * 256 + chunk: plain, edge, pale (waiting), and the same dimmed off the critical path.
function paletteTable() {
  if (P.table) return P.table;
  const table = {plain: [], edge: [], pale: [], dim: [], hatch: [], ink: []};
  for (let kind = 0; kind < KINDS.length; ++kind) {
    for (let chunk = 0; chunk < (isPipelineKind(kind) ? Math.min(D.chunks, 256) : 1); ++chunk) {
      const rgb = boxColour(kind, chunk), at = kind * 256 + chunk;
      table.plain[at] = pack(rgb);
      table.edge[at] = pack(mix(rgb, [0, 0, 0], 0.38));
      table.pale[at] = pack(mix(rgb, P.card, 0.62));
      table.dim[at] = pack(mix(rgb, P.card, 0.8));
      table.hatch[at] = pack(mix(rgb, [0, 0, 0], 0.3));
      table.ink[at] = 1.05 / (luminance(rgb) + 0.05) > (luminance(rgb) + 0.05) / 0.05 ? "#fff" : "#000";
    }
  }
  return (P.table = table);
}

// One line of pixels for [t0, t1) and what is needed to finish it.
class Line {
  constructor(width) {
    this.width = width;
    this.fill = new Uint32Array(width);
    this.edge = new Uint32Array(width);
    this.mixed = new Float32Array(width * 4);  // r, g, b, coverage of boxes narrower than a pixel
    this.hatched = [];                         // x0, x1, colour
  }
  clear(colour) {
    this.fill.fill(colour);
    this.edge.fill(colour);
    this.mixed.fill(0);
    this.hatched.length = 0;
    this.touchX = -1;
  }
  box(a, b, fill, edge) {
    if (b - a < 1.5) return this.sliver(a, b, fill);
    const x0 = clamp(Math.round(a), 0, this.width), x1 = clamp(Math.max(Math.round(b), x0 + 1), 0, this.width);
    if (x1 <= x0) return;
    this.fill.fill(fill, x0, x1);
    this.edge.fill(edge, x0, x1);
    if (x1 - x0 < 5 || fill === edge) return;
    // Touching boxes share one dark line.
    if (this.touchX !== x0) this.fill[x0] = edge;
    this.fill[x1 - 1] = edge;
    this.touchX = x1;
  }
  sliver(a, b, colour) {
    const x = Math.floor(a);
    if (x < 0 || x >= this.width) return;
    const cover = Math.max(b - a, 0.12), at = x * 4;
    this.mixed[at] += (colour & 255) * cover;
    this.mixed[at + 1] += ((colour >> 8) & 255) * cover;
    this.mixed[at + 2] += ((colour >> 16) & 255) * cover;
    this.mixed[at + 3] += cover;
  }
  finish() {
    for (let x = 0, at = 0; x < this.width; ++x, at += 4) {
      const cover = this.mixed[at + 3];
      if (cover === 0) continue;
      const share = Math.min(1, cover), below = this.fill[x];
      const r = (below & 255) * (1 - share) + (this.mixed[at] / cover) * share;
      const g = ((below >> 8) & 255) * (1 - share) + (this.mixed[at + 1] / cover) * share;
      const b = ((below >> 16) & 255) * (1 - share) + (this.mixed[at + 2] / cover) * share;
      this.fill[x] = this.edge[x] = ((255 << 24) | (b << 16) | (g << 8) | r) >>> 0;
    }
  }
}

// Paints the events of one lane into a line whose pixel 0 is t0 and which has k pixels a nanosecond.
function paintLane(line, lane, t0, t1, k, critical) {
  const table = paletteTable();
  let i = firstAbove(D.end, lane.begin, lane.end, t0);
  const stop = firstAbove(D.start, i, lane.end, t1);
  if (stop - i > 6 * line.width) return paintDense(line, i, stop, t0, k);
  for (; i < stop; ++i) {
    const at = D.kind[i] * 256 + D.chunk[i];
    const dim = critical && !D.onPath[i];
    const a = (D.start[i] - t0) * k, r = (D.ready[i] - t0) * k, b = (D.end[i] - t0) * k;
    if (r > a) line.box(a, r, dim ? table.dim[at] : table.pale[at], dim ? table.dim[at] : table.pale[at]);
    line.box(r, b, dim ? table.dim[at] : table.plain[at], dim ? table.dim[at] : table.edge[at]);
    if (D.kind[i] === WEIGHT && b - a >= 6 && !dim) {
      line.hatched.push(Math.max(0, Math.round(a) + 1), Math.min(line.width, Math.round(b) - 1), table.hatch[at]);
    }
  }
  return stop;
}

// Far more events than pixels: running sums give every pixel its exact busy share, so that bubbles never vanish.
function paintDense(line, first, stop, t0, k) {
  const sumAt = (sums, i, t) => sums[i] + (i < stop && t > D.start[i] ? (sums[i + 1] - sums[i]) *
    Math.min(1, (t - D.start[i]) / Math.max(D.end[i] - D.start[i], 1e-9)) : 0);
  const forward = P.kinds[0], backward = P.kinds[1];
  let i = first, busy = sumAt(D.busy, first, t0), ahead = sumAt(D.forward, first, t0);
  for (let x = 0; x < line.width; ++x) {
    const t = t0 + (x + 1) / k;
    i = firstAbove(D.end, i, stop, t);
    const busyNow = sumAt(D.busy, i, t), aheadNow = sumAt(D.forward, i, t);
    const share = clamp((busyNow - busy) * k, 0, 1);
    if (share > 0) {
      const colour = mix(backward, forward, clamp((aheadNow - ahead) / Math.max(busyNow - busy, 1e-9), 0, 1));
      const at = x * 4;
      for (let c = 0; c < 3; ++c) line.mixed[at + c] += colour[c] * share;
      line.mixed[at + 3] += share;
    }
    busy = busyNow;
    ahead = aheadNow;
  }
  return stop;
}

// Copies a finished line into rows [y0, y1) of an image.
function copyLine(image, imageWidth, line, x0, y0, y1, edges) {
  for (let y = y0; y < y1; ++y) {
    const edge = edges && (y === y0 || y === y1 - 1);
    image.set(edge ? line.edge : line.fill, y * imageWidth + x0);
  }
  for (let h = 0; h < line.hatched.length; h += 3) {
    const [from, to, colour] = [line.hatched[h], line.hatched[h + 1], line.hatched[h + 2]];
    for (let y = y0 + 1; y < y1 - 1; ++y) {
      for (let x = from; x < to; ++x) if (((x + y) & 7) < 3) image[y * imageWidth + x0 + x] = colour;
    }
  }
}

// --- labels: each text is drawn once and then copied, since fillText for every box would dominate the frame --------------

const labelCache = new Map();

function labelImage(text, ink, size, scale) {
  const key = `${text}|${ink}|${size}|${scale}`;
  let made = labelCache.get(key);
  if (made) return made;
  made = document.createElement("canvas");
  const probe = made.getContext("2d");
  const font = `${size * scale}px system-ui, "Segoe UI", Roboto, Helvetica, Arial, sans-serif`;
  probe.font = font;
  made.width = Math.max(1, Math.ceil(probe.measureText(text).width) + 2);
  made.height = Math.ceil(size * scale * 1.3);
  const pen = made.getContext("2d");
  pen.font = font;
  pen.fillStyle = ink;
  pen.textBaseline = "middle";
  pen.fillText(text, 1, made.height / 2);
  if (labelCache.size > 20000) labelCache.clear();
  labelCache.set(key, made);
  return made;
}
