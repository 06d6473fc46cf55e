// Everything around the timeline that is text and tables: key figures, bubble table, critical path, legend, provenance.

const PLACES = ["fill", "internal", "drain"];
const CAUSES = ["waiting-on-recv", "waiting-on-send", "waiting-on-collective", "transfer", "host"];
const CAUSE_CLASSES = ["c-recv", "c-send", "c-coll", "c-wire", "c-host"];

// The row of a step and rank from the columns (reports/html/page_data.cc, RankColumns).
function rankTime(step, rank) {
  const at = (D.steps.indexOf(step) * D.ranks + rank) * 12, v = D.rankTime;
  const place = [v[at + 4], v[at + 5], v[at + 6]];
  const row = {rank, pipeline: v[at], other: v[at + 1], first: v[at + 2], last: v[at + 3], place,
    cause: [v[at + 7], v[at + 8], v[at + 9], v[at + 10], v[at + 11]], idle: place[0] + place[1] + place[2]};
  row.makespan = ratio(row.idle, step.window);
  row.stage = ratio(place[1], row.last - row.first);
  return row;
}

function rankPeak(step, rank) {
  const at = (D.steps.indexOf(step) * D.ranks + rank) * 3;
  return {bytes: D.peak[at], time: D.peak[at + 1], text: D.peakTexts[D.peak[at + 2]] || ""};
}

const allRanks = (step) => Array.from({length: D.ranks}, (_, rank) => rankTime(step, rank));

function drawFigures() {
  // Figures of a step that stopped halfway would mislead.
  $("figures").hidden = !!$("deadlock");
  const step = describedStep(), rows = allRanks(step);
  const idle = rows.reduce((a, r) => a + r.idle, 0), makespan = ratio(idle, step.window * D.ranks);
  const figures = [];
  const add = (title, value, note) => figures.push(`<dl class="figure"><dt>${title}</dt><dd>${value}</dd><small>${note}</small></dl>`);
  add(S.step >= 0 ? "step time" : `step time (step ${step.step})`, duration(step.end - step.begin),
    `pipeline ${duration(step.window)}, tail ${duration(step.end - step.begin - step.window)}`);
  add("bubble, makespan", percent(makespan), step.formula !== undefined
    ? `textbook ${percent(step.formula)} = ${escapeHtml(step.formulaText.replace("*", "·"))}` : "idle ÷ (ranks × makespan)");
  add("bubble, stage time", rows.length ? percent(rows[step.longest].stage) : "–", `of rank ${step.longest}, which takes longest`);
  let top = {bytes: 0}, where = 0;
  for (let rank = 0; rank < D.ranks; ++rank) {
    const peak = rankPeak(step, rank);
    if (peak.bytes > top.bytes) { top = peak; where = rank; }
  }
  if (top.bytes > 0) add("peak memory", bytes(top.bytes), `rank ${where}${top.text ? `, at ${escapeHtml(top.text)}` : ""}`);
  if (typeof step.loss === "number") {
    add(step.evaluation ? "validation loss" : "loss", step.loss.toPrecision(5),
      step.skipped ? "overflow: step not applied" : step.gradNorm >= 0 ? `gradient norm ${step.gradNorm.toPrecision(3)}` : "&nbsp;");
  }
  const skipped = D.steps.filter((s) => s.skipped).length;
  if (step.scale > 1 || skipped) {
    const power = Math.log2(step.scale);
    add("loss scale", Number.isInteger(power) ? `2<sup class="dim">${power}</sup>` : step.scale,
      skipped ? `${skipped} step${skipped > 1 ? "s" : ""} of the run skipped` : "no overflow in the run");
  }
  $("figures").innerHTML = figures.join("");
}

// --- bubble table ----------------------------------------------------------------------------------------------------

const sorting = {column: "rank", down: false};

function bubbleColumns(step) {
  const of = (value) => (value === 0 ? "0" : duration(value));
  return [
    {id: "rank", head: "rank", value: (r) => r.rank, text: (r) => r.rank, total: () => "all"},
    {id: "share", head: "share of the makespan", shares: true},
    {id: "makespan", head: "bubble<br>makespan", value: (r) => r.makespan, text: (r) => percent(r.makespan),
      total: (t) => percent(ratio(t.idle, step.window * D.ranks))},
    {id: "stage", head: "bubble<br>stage time", value: (r) => r.stage, text: (r) => percent(r.stage),
      total: () => (D.ranks ? percent(rankTime(step, step.longest).stage) : "–")},
    {id: "pipeline", head: "busy", value: (r) => r.pipeline, text: (r) => of(r.pipeline)},
    {id: "other", head: "other<br>work", value: (r) => r.other, text: (r) => of(r.other)},
    ...PLACES.map((name, k) => ({id: name, head: name, value: (r) => r.place[k], text: (r) => of(r.place[k])})),
    ...CAUSES.map((name, k) => ({id: name, head: name.replace("waiting-on-", "waiting<br>on "), value: (r) => r.cause[k], text: (r) => of(r.cause[k])})),
  ];
}

function sum(rows) {
  const total = {rank: -1, pipeline: 0, other: 0, idle: 0, place: [0, 0, 0], cause: [0, 0, 0, 0, 0]};
  for (const r of rows) {
    for (const key of ["pipeline", "other", "idle"]) total[key] += r[key];
    r.place.forEach((v, k) => { total.place[k] += v; });
    r.cause.forEach((v, k) => { total.cause[k] += v; });
  }
  return total;
}

function shares(r, window) {
  const part = (value, name) => (value > 0 ? `<i class="${name}" style="width:${(100 * ratio(value, window)).toFixed(3)}%"></i>` : "");
  const words = [`busy ${percent(ratio(r.pipeline, window))}`, ...CAUSES.map((c, k) => `${c} ${percent(ratio(r.cause[k], window))}`)];
  return `<div class="shares" role="img" title="${words.join("\n")}" aria-label="${words.join(", ")}">${part(r.pipeline, "c-pipe")}${part(r.other, "c-other")}
    ${r.cause.map((v, k) => part(v, CAUSE_CLASSES[k])).join("")}</div>`;
}

function drawBubbles() {
  const step = describedStep(), rows = allRanks(step), total = sum(rows);
  const columns = bubbleColumns(step).filter((c) => c.shares || !c.value || ["rank", "pipeline", "makespan", "stage"].includes(c.id) || c.value(total) > 0);
  const by = columns.find((c) => c.id === sorting.column) || columns[0];
  rows.sort((a, b) => (by.value(a) - by.value(b)) * (sorting.down ? -1 : 1) || a.rank - b.rank);
  const head = columns.map((c) => (c.shares ? `<th>${c.head}</th>` : `<th class="${c.id === "rank" ? "" : "num"}" aria-sort="${c === by ? (sorting.down ? "descending" : "ascending") : "none"}">
    <button data-sort="${c.id}">${c.head}${c === by ? (sorting.down ? " ↓" : " ↑") : ""}</button></th>`)).join("");
  const cell = (c, r) => (c.shares ? `<td style="width:24%">${shares(r, step.window)}</td>` : c.id === "rank" ? `<th scope="row">${c.text(r)}</th>`
    : `<td class="num">${c.text(r)}</td>`);
  const most = 256, body = rows.slice(0, most).map((r) => `<tr>${columns.map((c) => cell(c, r)).join("")}</tr>`).join("");
  const foot = columns.map((c) => (c.shares ? `<td>${shares(total, step.window * D.ranks)}</td>` : c.id === "rank" ? "<th>all</th>"
    : `<td class="num">${(c.total || c.text)(total)}</td>`)).join("");
  $("bubbletable").innerHTML = `<table><thead><tr>${head}</tr></thead><tbody>${body}</tbody><tfoot><tr>${foot}</tr></tfoot></table>` +
    (rows.length > most ? `<p class="muted">${most} of ${rows.length} ranks; sort to see others, or copy all as CSV</p>` : "");
  for (const button of $("bubbletable").querySelectorAll("[data-sort]")) {
    button.onclick = () => {
      sorting.down = sorting.column === button.dataset.sort ? !sorting.down : button.dataset.sort !== "rank";
      sorting.column = button.dataset.sort;
      drawBubbles();
    };
  }
  const legend = [["c-pipe", "busy"], ["c-other", "other work"], ...CAUSES.map((c, k) => [CAUSE_CLASSES[k], c])]
    .filter(([, name]) => name === "busy" || (name === "other work" ? total.other : total.cause[CAUSES.indexOf(name)]) > 0)
    .map(([c, name]) => `<span><i class="swatch ${c}"></i>${name}</span>`).join("");
  $("bubbletext").innerHTML = `Step ${step.step}, from its begin to its last pipeline computation (makespan ${duration(step.window)}).
    Idle time is split by place and by cause; both sums are the same. Stage time counts only a rank's internal gaps.
    <span class="legend" style="margin:6px 0 8px">${legend}</span>`;
}

function copyCsv() {
  const step = describedStep();
  const head = ["rank", "busy_ns", "other_ns", ...PLACES.map((p) => `${p}_ns`), ...CAUSES.map((c) => `${c}_ns`), "bubble_makespan", "bubble_stage_time"];
  const lines = allRanks(step).map((r) => [r.rank, r.pipeline, r.other, ...r.place, ...r.cause, r.makespan.toFixed(6), r.stage.toFixed(6)].join(","));
  const text = [head.join(","), ...lines].join("\n") + "\n";
  const done = () => { $("csv").textContent = "copied"; setTimeout(() => { $("csv").textContent = "copy as CSV"; }, 1500); };
  const byHand = () => {
    const box = document.createElement("textarea");
    box.value = text;
    document.body.append(box);
    box.select();
    document.execCommand("copy");
    box.remove();
    done();
  };
  // The clipboard interface is missing in files opened from disk by some browsers.
  if (navigator.clipboard) navigator.clipboard.writeText(text).then(done, byHand); else byHand();
}

// --- critical path ---------------------------------------------------------------------------------------------------

function drawPath() {
  const step = describedStep(), total = step.pathTime.reduce((a, b) => a + b, 0);
  const rows = step.pathTime.map((time, k) => ({time, k})).filter((r) => r.time > 0).sort((a, b) => b.time - a.time);
  const name = (k) => (k === KINDS.length ? "nothing that the record knows" : k === SEND || k === RECV ? `${KIND_TITLES[k]}, transfer` : KIND_TITLES[k]);
  const bars = rows.map(({time, k}) => `<span>${name(k)}</span><i style="width:${(100 * time / rows[0].time).toFixed(2)}%;background:${k === KINDS.length ? "var(--muted)" : `var(--k${k})`}"></i>
    <span class="num">${duration(time)} · ${percent(ratio(time, total))}</span>`).join("");
  const hops = step.events.reduce((n, i, k) => n + (k > 0 && rankOf(i) !== rankOf(step.events[k - 1]) ? 1 : 0), 0);
  $("path").innerHTML = rows.length ? `<p class="muted">Of step ${step.step}: ${step.events.length} events and ${hops} changes of rank from the step's begin
    to its last event. Only what is on it makes the step longer or shorter.</p><div class="bars">${bars}</div>
    <button id="showpath">show in the timeline</button>` : '<p class="muted">No events in this step.</p>';
  if (rows.length) $("showpath").onclick = () => { if (!S.critical) toggle("critical"); $("timeline").scrollIntoView({block: "start"}); };
}

// --- legend and provenance -------------------------------------------------------------------------------------------

function buildLegend() {
  const present = new Set(D.kind);
  const items = [];
  const swatch = (style, extra = "") => `<i class="swatch ${extra}" style="background-color:${style}"></i>`;
  for (const k of [0, 1, 2, WEIGHT, RECOMPUTE]) if (present.has(k)) items.push(`<span>${swatch(`var(--k${k})`, k === WEIGHT ? "hatch" : "")}${KINDS[k]} ${KIND_TITLES[k]}</span>`);
  if (D.chunks > 1) items.push(`<span>${swatch("color-mix(in srgb, var(--k0) 72%, var(--towards))")}${swatch("color-mix(in srgb, var(--k1) 72%, var(--towards))")}later chunks (c1${D.chunks > 2 ? ", c2, …" : ""})</span>`);
  if (present.has(OTHER)) items.push(`<span>${swatch("var(--k4)")}${KIND_TITLES[OTHER]}</span>`);
  if (present.has(SEND) || present.has(RECV)) items.push(`<span>${swatch("var(--k5)", "thin")}send above, receive below; pale: waiting</span>`);
  if (present.has(COLLECTIVE)) items.push(`<span>${swatch("var(--k7)", "thin")}collective</span>`);
  $("legend").innerHTML = items.join("");
}

// The [time] section of the configuration: what predicted times are made of.
function timeModel() {
  const match = /^\[time\]\s*$([\s\S]*?)(?=^\[|(?![\s\S]))/m.exec(D.config);
  return match ? match[1].split("\n").map((l) => l.trim()).filter((l) => l && !l.startsWith("#") && !l.endsWith("= []")).join(" · ") : "";
}

function buildProvenance() {
  const facts = [["command", D.command && `<code>${escapeHtml(D.command)}</code>`], ["written by", escapeHtml(D.producer)],
    ["executed by", escapeHtml(D.backend)], ["seed", escapeHtml(D.seed)], ["time model", escapeHtml(timeModel())],
    ["program digest", `<code>${D.programDigest}</code>`], ["record digest", `<code>${D.recordDigest}</code>`],
    ["data digest", D.dataDigest && `<code>${escapeHtml(D.dataDigest)}</code>`],
    ["messages", D.matched || D.unmatched ? `${D.matched} pairs of send and receive matched${D.unmatched ? `, ${D.unmatched} without another end` : ""}` : ""]];
  const last = [...D.steps].reverse().find((s) => s.params);
  if (last) facts.push([`parameters after step ${last.step}`, `<code>${last.params}</code>`], ["optimizer state", last.optimizer && `<code>${last.optimizer}</code>`]);
  if (D.leftOut) facts.push(["left out", `${D.leftOut} events did not fit into this page; its tables count them all`]);
  $("facts").innerHTML = `<dl class="facts">${facts.filter(([, v]) => v).map(([k, v]) => `<dt>${k}</dt><dd>${v}</dd>`).join("")}</dl>` +
    (D.config ? `<details><summary>configuration</summary><pre>${escapeHtml(D.config)}</pre></details>` : "");
}
