// Curves as SVG: memory by rank, losses, loss scale. Axes are drawn by hand; nothing here has more than a few thousand points.

function drawCharts() {
  if (!D || !D.steps.length) return;
  drawMemory();
  drawTraining();
}

function niceTop(value) {
  const power = 10 ** Math.floor(Math.log10(Math.max(value, 1e-12)));
  return [1, 1.5, 2, 3, 4, 5, 6, 8, 10].map((m) => m * power).find((t) => t >= value * 0.999) || value;
}

function niceBytes(value) {
  let unit = 1;
  while (value / unit >= 1024) unit *= 1024;
  return unit * niceTop(value / unit);
}

// A frame with horizontal lines. x and y map data to pixels; `left` is the room for the labels of y.
function frame({width, height, left, yTicks, xLabels, y}) {
  const lines = yTicks.map(({v, text}) => `<path class="grid" d="M${left} ${y(v).toFixed(1)}H${width}"/><text x="${left - 5}" y="${(y(v) + 4).toFixed(1)}" text-anchor="end">${text}</text>`);
  const labels = xLabels.map(({x, text, anchor}) => `<text x="${x.toFixed(1)}" y="${height - 2}" text-anchor="${anchor}">${text}</text>`);
  return lines.join("") + labels.join("");
}

const svg = (width, height, body, title) => `<svg viewBox="0 0 ${width} ${height}" role="img" aria-label="${escapeHtml(title)}">${body}</svg>`;

// --- memory ----------------------------------------------------------------------------------------------------------

// Steps of one rank inside [from, to], thinned to what a chart can show, keeping every local top.
function memoryPoints(rank, from, to, most) {
  const of = D.memory[rank];
  const a = Math.max(0, firstAbove(of.time, 0, of.time.length, from - 0.5) - 1);
  const b = firstAbove(of.time, a, of.time.length, to);
  const points = [], stride = Math.max(1, Math.ceil((b - a) / most));
  for (let k = a; k < b; k += stride) {
    let top = k;
    for (let j = k; j < Math.min(k + stride, b); ++j) if (of.live[j] > of.live[top]) top = j;
    points.push([Math.max(of.time[top], from), of.live[top]]);
  }
  return points;
}

function memoryChart(rank, step, top, width, height) {
  const left = 58, bottom = height - 17, head = 8;
  const x = (t) => left + (t - step.begin) / Math.max(1, step.end - step.begin) * (width - left - 4);
  const y = (v) => bottom - v / top * (bottom - head);
  const points = memoryPoints(rank, step.begin, step.end, 900);
  let path = "", before = null;
  for (const [t, v] of points) {
    path += before === null ? `M${x(t).toFixed(1)} ${y(v).toFixed(1)}` : `H${x(t).toFixed(1)}V${y(v).toFixed(1)}`;
    before = v;
  }
  if (before !== null) path += `H${x(step.end).toFixed(1)}`;
  const peak = rankPeak(step, rank);
  const px = x(clamp(peak.time, step.begin, step.end)), py = y(peak.bytes);
  const mark = peak.bytes > 0 ? `<circle cx="${px.toFixed(1)}" cy="${py.toFixed(1)}" r="4" style="fill:var(--k4);stroke:var(--card);stroke-width:1.5"/>` : "";
  const area = path ? `<path d="${path}V${bottom}H${x(points[0][0]).toFixed(1)}z" style="fill:var(--k0);opacity:.16"/><path d="${path}" style="fill:none;stroke:var(--k0);stroke-width:1.5"/>` : "";
  const ticks = [0, top / 2, top].map((v) => ({v, text: v === 0 ? "0" : bytes(v)}));
  const axis = frame({width, height, left, yTicks: ticks, y, xLabels: [{x: left, text: "0", anchor: "start"}, {x: width - 4, text: duration(step.end - step.begin), anchor: "end"}]});
  return `<div class="chart"><h3>rank ${rank} <span>${bytes(peak.bytes)}${peak.text ? ` at ${escapeHtml(peak.text)}` : ""}</span></h3>${svg(width, height, axis + area + mark, `memory of rank ${rank}, peak ${bytes(peak.bytes)}`)}</div>`;
}

function drawMemory() {
  const step = describedStep(), box = $("memorycharts");
  const peaks = Array.from({length: D.ranks}, (_, rank) => ({rank, ...rankPeak(step, rank)}));
  const top = Math.max(0, ...peaks.map((p) => p.bytes));
  $("memory").hidden = top <= 0;
  if (top <= 0) return;
  const shown = D.ranks <= 8 ? peaks : [...peaks].sort((a, b) => b.bytes - a.bytes || a.rank - b.rank).slice(0, 2).sort((a, b) => a.rank - b.rank);
  const charts = shown.map((p) => memoryChart(p.rank, step, niceBytes(top), 300, 118)).join("");
  const bars = D.ranks > 8 ? peakBars(peaks, niceBytes(top)) : "";
  box.innerHTML = `<p class="muted" style="margin-bottom:8px">Live bytes in host order, step ${step.step}; the dot is the peak.${D.ranks > 8 ? " Peak by rank, then the curves of the two largest." : ""}</p>${bars}<div class="small">${charts}</div>`;
}

function peakBars(peaks, top) {
  const width = 640, height = 120, left = 62, bottom = height - 17, head = 8;
  const y = (v) => bottom - v / top * (bottom - head), w = (width - left) / peaks.length;
  const bars = peaks.map((p) => `<rect x="${(left + p.rank * w + Math.min(1, w * 0.1)).toFixed(2)}" y="${y(p.bytes).toFixed(1)}" width="${Math.max(0.5, w - Math.min(2, w * 0.2)).toFixed(2)}" height="${(bottom - y(p.bytes)).toFixed(1)}" style="fill:var(--k0)"><title>rank ${p.rank}: ${bytes(p.bytes)} ${escapeHtml(p.text)}</title></rect>`).join("");
  const axis = frame({width, height, left, y, yTicks: [0, top / 2, top].map((v) => ({v, text: v === 0 ? "0" : bytes(v)})),
    xLabels: [{x: left, text: "rank 0", anchor: "start"}, {x: width, text: `rank ${peaks.length - 1}`, anchor: "end"}]});
  return `<div class="chart" style="margin-bottom:12px">${svg(width, height, axis + bars, "peak memory by rank")}</div>`;
}

// --- losses and loss scale -------------------------------------------------------------------------------------------

const number = (v) => (Math.abs(v) >= 1000 || (v !== 0 && Math.abs(v) < 0.01) ? v.toExponential(1) : String(+v.toPrecision(3)));

// series: [{points: [[x, y]], colour, steps, dots, dash}], all over the same x range.
function chart(title, note, series, options = {}) {
  const width = 440, height = 190, left = 48, bottom = height - 20, head = 10;
  const all = series.flatMap((s) => s.points);
  if (!all.length) return "";
  const xs = options.xRange, f = options.log ? Math.log2 : (v) => v;
  let low = Math.min(...all.map((p) => f(p[1]))), high = Math.max(...all.map((p) => f(p[1])));
  const pad = Math.max((high - low) * 0.08, Math.abs(high) * 1e-3, 1e-9);
  [low, high] = options.log ? [Math.floor(low) - 0.5, Math.ceil(high) + 0.5] : [low - pad, high + pad];
  const x = (v) => left + (xs[1] > xs[0] ? (v - xs[0]) / (xs[1] - xs[0]) : 0.5) * (width - left - 8);
  const y = (v) => bottom - (f(v) - low) / (high - low) * (bottom - head);
  const marks = options.log ? logTicks(low, high) : ticks(low, high, 5).list.map((v) => ({v, text: number(v)}));
  let body = frame({width, height, left, y, yTicks: marks, xLabels: [{x: x(xs[0]), text: options.xName ? `${options.xName} ${xs[0]}` : xs[0], anchor: "start"},
    ...(xs[1] > xs[0] ? [{x: x(xs[1]), text: xs[1], anchor: "end"}] : [])]});
  for (const at of options.overflows || []) {
    body += `<path d="M${x(at).toFixed(1)} ${head}V${bottom}" style="stroke:var(--bad);stroke-width:1.2;stroke-dasharray:3 3;opacity:.8"/><path d="M${(x(at) - 4).toFixed(1)} ${bottom - 4}l8 8m0 -8l-8 8" style="stroke:var(--bad);stroke-width:2"/>`;
  }
  for (const s of series) {
    if (!s.points.length) continue;
    const path = s.points.map(([a, b], k) => (k === 0 ? `M${x(a).toFixed(1)} ${y(b).toFixed(1)}` : s.steps ? `H${x(a).toFixed(1)}V${y(b).toFixed(1)}` : `L${x(a).toFixed(1)} ${y(b).toFixed(1)}`)).join("");
    body += `<path d="${path}" style="fill:none;stroke:${s.colour};stroke-width:2;stroke-linejoin:round${s.dash ? `;stroke-dasharray:${s.dash}` : ""}"/>`;
    if (s.dots || s.points.length === 1) body += s.points.map(([a, b]) => `<circle cx="${x(a).toFixed(1)}" cy="${y(b).toFixed(1)}" r="3.5" style="fill:${s.colour};stroke:var(--card);stroke-width:1"/>`).join("");
  }
  return `<div class="chart"><h3>${title} <span>${note}</span></h3>${svg(width, height, body, title)}</div>`;
}

function logTicks(low, high) {
  const first = Math.ceil(low), last = Math.floor(high), every = Math.max(1, Math.ceil((last - first) / 5));
  const list = [];
  for (let p = first; p <= last; p += every) list.push({v: 2 ** p, text: `2<tspan dy="-4" style="font-size:8px">${p}</tspan>`});
  return list;
}

function drawTraining() {
  const known = D.steps.filter((s) => s.iteration !== undefined);
  const training = known.filter((s) => !s.evaluation), evaluation = known.filter((s) => s.evaluation && typeof s.loss === "number");
  const withLoss = training.filter((s) => typeof s.loss === "number");
  const xs = known.length ? [Math.min(...known.map((s) => s.iteration)), Math.max(...known.map((s) => s.iteration))] : [0, 1];
  const overflows = training.filter((s) => s.skipped).map((s) => s.iteration);
  const options = {xRange: xs, xName: "iteration", overflows};
  const charts = [];
  if (withLoss.length || evaluation.length) {
    const key = `<span style="color:var(--k0)">●</span> training${evaluation.length ? ' <span style="color:var(--k4)">●</span> validation' : ""}${overflows.length ? ' <span style="color:var(--bad)">✕</span> overflow' : ""}`;
    charts.push(chart("Loss", key, [{points: withLoss.map((s) => [s.iteration, s.loss]), colour: "var(--k0)"},
      {points: evaluation.map((s) => [s.iteration, s.loss]), colour: "var(--k4)", dots: true, dash: "5 3"}], options));
  }
  const scaled = training.filter((s) => s.scale > 0 && (s.scale !== 1 || s.scaleAfter !== 1));
  if (scaled.length) {
    const points = scaled.map((s) => [s.iteration, s.scale]);
    charts.push(chart("Loss scale", `${overflows.length} overflow${overflows.length === 1 ? "" : "s"}`, [{points, colour: "var(--k2)", steps: true}], {...options, log: true}));
  }
  const norms = training.filter((s) => s.gradNorm >= 0);
  if (norms.length > 1) charts.push(chart("Gradient norm", "before clipping", [{points: norms.map((s) => [s.iteration, s.gradNorm]), colour: "var(--k3)"}], options));
  $("trainingcharts").innerHTML = charts.join("");
  $("training").hidden = !charts.length;
}
