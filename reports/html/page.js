// State, start and shared helpers. The page's scripts are joined in name order into one function; only boot() runs by
// itself, so the order of the files does not matter.

const KINDS = ["F", "B", "I", "W", "OPT", "SEND", "RECV", "COLL", "R"];
const KIND_TITLES = ["forward", "backward", "input gradient", "weight gradient", "optimizer and the rest", "send",
  "receive", "collective", "recomputation"];
const FORWARD = 0, WEIGHT = 3, OTHER = 4, SEND = 5, RECV = 6, COLLECTIVE = 7, RECOMPUTE = 8;
const root = document.documentElement;
const $ = (id) => document.getElementById(id);

let D = null;  // decoded data, see page_data.js
const S = {
  step: 0,       // index into D.steps, -1: all
  t0: 0, t1: 1,  // visible time
  sel: -1,       // selected event
  gap: null,     // selected gap {lane, next, from, to}
  hover: -1,
  critical: false, gaps: false, streams: false,
  scroll: 0,     // of the rows, when they do not fit
};

const errors = [];
addEventListener("error", (e) => { errors.push(e.message); root.dataset.errors = errors.length; });
addEventListener("unhandledrejection", (e) => { errors.push(String(e.reason)); root.dataset.errors = errors.length; });

async function boot() {
  root.dataset.errors = 0;
  const hash = new URLSearchParams(location.hash.slice(1));
  setTheme(hash.get("theme") || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light"), false);
  D = await decodeData($("data").textContent);
  S.step = D.typical;
  const nothing = D.count === 0 && D.steps.length === 0;
  for (const id of ["figures", "timeline", "bubbles", "two", "training"]) if (nothing) $(id).hidden = true;
  $("nothing").hidden = !nothing;
  buildSteps();
  buildLegend();
  buildProvenance();
  listenToTimeline();
  readHash(hash);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", (e) => setTheme(e.matches ? "dark" : "light"));
  $("theme").onclick = toggleTheme;
  $("help").onclick = showKeys;
  $("csv").onclick = copyCsv;
  addEventListener("beforeprint", preparePrint);
  addEventListener("afterprint", finishPrint);
  new ResizeObserver(() => { layout(); draw(); drawCharts(); }).observe($("timeline"));
  stepChanged();
  root.dataset.boxes = drawn.boxes;
  root.dataset.events = D.count;
  root.dataset.state = "ready";
}

// --- helpers ---------------------------------------------------------------------------------------------------------

function escapeHtml(text) {
  return String(text).replace(/[&<>"']/g, (c) => ({"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#39;"})[c]);
}

function duration(ns) {
  const a = Math.abs(ns);
  if (a < 1e3) return `${ns} ns`;
  const [unit, name] = a < 1e6 ? [1e3, "µs"] : a < 1e9 ? [1e6, "ms"] : [1e9, "s"];
  const v = ns / unit;
  return `${v.toFixed(Math.abs(v) < 10 ? 2 : Math.abs(v) < 100 ? 1 : 0)} ${name}`;
}

function bytes(n) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let k = 0;
  while (Math.abs(n) >= 1024 && k < 4) { n /= 1024; ++k; }
  return `${k === 0 || Math.abs(n) >= 100 ? Math.round(n) : n.toFixed(1)} ${units[k]}`;
}

const percent = (x, digits = 1) => `${(100 * x).toFixed(digits)} %`;
const clamp = (x, low, high) => Math.min(Math.max(x, low), high);
const ratio = (a, b) => (b > 0 ? a / b : 0);
const phone = () => innerWidth <= 600;

function debounce(f, wait) {
  let timer = 0;
  return () => { clearTimeout(timer); timer = setTimeout(f, wait); };
}

// --- theme -----------------------------------------------------------------------------------------------------------

function setTheme(name, redraw = true) {
  root.dataset.theme = name === "dark" ? "dark" : "light";
  readPalette();
  if (!redraw || !D) return;
  labelCache.clear();
  draw();
  drawCharts();
}

function toggleTheme() {
  setTheme(root.dataset.theme === "dark" ? "light" : "dark");
  saveHash();
}

// --- the view in the address, so that a link reopens the same spot -----------------------------------------------------

function readHash(hash) {
  if (hash.has("step")) S.step = clamp(parseInt(hash.get("step"), 10) || 0, -1, D.steps.length - 1);
  for (const key of ["critical", "gaps", "streams"]) {
    S[key] = hash.get(key) === "1";
    $(key).setAttribute("aria-pressed", S[key]);
  }
  const at = (hash.get("t") || "").split("-").map(Number);
  if (at.length === 2 && at[1] > at[0]) S.restore = at;
  const sel = parseInt(hash.get("sel"), 10);
  if (sel >= 0 && sel < D.count) S.sel = sel;
}

const saveHash = debounce(() => {
  const parts = [`step=${S.step}`, `t=${Math.round(S.t0)}-${Math.round(S.t1)}`, `theme=${root.dataset.theme}`];
  if (S.sel >= 0) parts.push(`sel=${S.sel}`);
  for (const key of ["critical", "gaps", "streams"]) if (S[key]) parts.push(`${key}=1`);
  try { history.replaceState(null, "", "#" + parts.join("&")); } catch (e) { /* some viewers forbid it */ }
}, 400);

// --- steps -----------------------------------------------------------------------------------------------------------

function stepName(s) {
  const step = D.steps[s];
  const notes = [];
  if (step.iteration !== undefined) notes.push(step.evaluation ? "evaluation" : `iteration ${step.iteration}`);
  if (step.skipped) notes.push("overflow, skipped");
  return `step ${step.step}${notes.length ? ` (${notes.join(", ")})` : ""}`;
}

function buildSteps() {
  const options = D.steps.map((step, s) => `<option value="${s}">${escapeHtml(stepName(s))}</option>`);
  $("step").innerHTML = `<option value="-1">all steps</option>${options.join("")}`;
  $("step").onchange = () => goToStep(+$("step").value);
  $("prev").onclick = () => goToStep(S.step - 1);
  $("next").onclick = () => goToStep(S.step + 1);
}

function goToStep(s) {
  S.step = clamp(s, -1, D.steps.length - 1);
  S.sel = -1;
  S.gap = null;
  stepChanged();
}

// The span that "fit" shows: the chosen step, or the run.
function span() {
  if (S.step >= 0 && D.steps.length) {
    const step = D.steps[S.step];
    return [step.begin, Math.max(step.end, step.begin + 1)];
  }
  return [D.first, Math.max(D.last, D.first + 1)];
}

// Panels that describe one step show the typical one while all steps are on screen.
const describedStep = () => D.steps[S.step >= 0 ? S.step : D.typical];

function stepChanged() {
  $("step").value = S.step;
  $("prev").disabled = S.step <= -1;
  $("next").disabled = S.step >= D.steps.length - 1;
  [S.t0, S.t1] = span();
  if (S.restore) { [S.t0, S.t1] = S.restore; S.restore = null; }
  layout();
  draw();
  if (D.steps.length) {
    drawFigures();
    drawBubbles();
    drawPath();
    drawCharts();
  }
  showDetails();
  saveHash();
}

function showKeys() {
  const keys = [["w / s", "zoom in / out"], ["a / d", "pan left / right"], ["0", "whole step"], ["f", "zoom to the selection"],
    ["← → ↑ ↓", "previous, next event; rank above, below"], ["[ / ]", "previous / next step"], ["/", "find, Enter for the next"],
    ["c", "critical path"], ["b", "explain bubbles"], ["e", "what the selection waited for"], ["v", "one lane a stream"],
    ["l", "light / dark"], ["Esc", "clear"], ["?", "this list"]];
  const rows = keys.map(([k, what]) => `<tr><td><kbd>${escapeHtml(k)}</kbd></td><td>${escapeHtml(what)}</td></tr>`);
  $("keytable").innerHTML = `<table><tbody>${rows.join("")}</tbody></table><p class="muted" style="margin-top:8px">Drag pans,
    shift and drag zooms to a range, Ctrl and wheel zooms (the wheel alone does after a click into the timeline).</p>`;
  $("keys").showModal();
}
