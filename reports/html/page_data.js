// Decoding of the data block (docs/report.md, "Data block").

async function decodeData(text) {
  const binary = atob(text.trim());
  const packed = new Uint8Array(binary.length);
  for (let i = 0; i < binary.length; ++i) packed[i] = binary.charCodeAt(i);
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
  const block = new Uint8Array(await new Response(stream).arrayBuffer());
  const headSize = block[0] + block[1] * 256 + block[2] * 65536 + block[3] * 16777216;
  const data = JSON.parse(new TextDecoder().decode(block.subarray(4, 4 + headSize)));
  let at = 4 + headSize;
  const columns = {};
  for (const column of data.columns) {
    columns[column.name] = readColumn(block, at, column.count);
    at += column.bytes;
  }
  buildEvents(data, columns);
  buildChunks(data);
  buildPaths(data, columns.path);
  buildMemory(data, columns);
  data.rankTime = columns.rankTime;
  data.peak = columns.peak;
  return data;
}

// LEB128, zigzag. Products instead of shifts, because times have more than 32 bits.
function readColumn(block, at, count) {
  const out = new Float64Array(count);
  for (let k = 0; k < count; ++k) {
    let b = block[at++];
    let v = b & 127, scale = 128;
    while (b > 127) {
      b = block[at++];
      v += (b & 127) * scale;
      scale *= 128;
    }
    out[k] = v % 2 === 0 ? v / 2 : -(v + 1) / 2;
  }
  return out;
}

function buildEvents(data, c) {
  const n = c.step.length;
  data.count = n;
  data.step = new Int32Array(n);
  data.label = new Uint16Array(n);
  data.mb = new Int32Array(n);
  data.kind = new Uint8Array(n);
  data.laneOf = new Int32Array(n);
  data.start = new Float64Array(n);
  data.ready = new Float64Array(n);
  data.end = new Float64Array(n);
  data.peer = new Int32Array(n);
  data.match = new Int32Array(n);
  data.cause = new Int32Array(n);
  data.causeKind = Uint8Array.from(c.causeKind);
  data.slack = c.slack;
  data.busy = new Float64Array(n + 1);     // running sum of durations, for views with more events than pixels
  data.forward = new Float64Array(n + 1);  // the part of it that is forward
  data.first = Infinity;
  data.last = 0;
  let i = 0, step = 0, label = 0, mb = 0;
  data.byRank = Array.from({length: data.ranks}, () => []);
  data.lanes.forEach((lane, laneIndex) => {
    lane.begin = i;
    lane.end = i + lane.count;
    data.byRank[lane.rank].push(lane);
    let time = 0;
    for (; i < lane.end; ++i) {
      data.step[i] = step += c.step[i];
      data.label[i] = label += c.label[i];
      data.mb[i] = mb += c.microbatch[i];
      data.kind[i] = data.labels[label].kind;
      data.laneOf[i] = laneIndex;
      data.start[i] = time + c.gap[i];
      data.ready[i] = data.start[i] + c.wait[i];
      data.end[i] = time = data.ready[i] + c.work[i];
      data.peer[i] = c.peer[i] === 0 ? -1 : lane.rank + c.peer[i] - (c.peer[i] > 0 ? 1 : 0);
      data.match[i] = c.match[i] === 0 ? -1 : i + c.match[i];
      data.cause[i] = c.cause[i] === 0 ? -1 : i + c.cause[i];
      data.busy[i + 1] = data.busy[i] + data.end[i] - data.start[i];
      data.forward[i + 1] = data.forward[i] + (data.kind[i] === FORWARD ? data.end[i] - data.start[i] : 0);
      data.first = Math.min(data.first, data.start[i]);
      data.last = Math.max(data.last, data.end[i]);
    }
  });
  for (const s of data.steps) {
    data.first = Math.min(data.first, s.begin);
    data.last = Math.max(data.last, s.end);
  }
  if (!isFinite(data.first)) data.first = 0;
}

// A chunk is a stage's place among its rank's stages.
function buildChunks(data) {
  data.stagesOf = data.byRank.map((lanes) => {
    const seen = new Set();
    for (const lane of lanes) {
      if (lane.kind !== "compute") continue;
      for (let i = lane.begin; i < lane.end; ++i) if (isPipelineKind(data.kind[i])) seen.add(data.labels[data.label[i]].stage);
    }
    return [...seen].sort((a, b) => a - b);
  });
  data.chunks = Math.max(1, ...data.stagesOf.map((s) => s.length));
  const tables = data.stagesOf.map((stages) => new Map(stages.map((s, k) => [s, k])));
  data.chunk = new Uint8Array(data.count);
  for (const lane of data.lanes) {
    if (lane.kind !== "compute") continue;
    for (let i = lane.begin; i < lane.end; ++i) {
      if (isPipelineKind(data.kind[i])) data.chunk[i] = Math.min(255, tables[lane.rank].get(data.labels[data.label[i]].stage));
    }
  }
}

function buildPaths(data, column) {
  data.onPath = new Uint8Array(data.count);
  let at = 0, event = 0;
  for (const step of data.steps) {
    step.events = [];
    for (let k = 0; k < step.path; ++k) {
      event += column[at++];
      step.events.push(event);
      data.onPath[event] = 1;
    }
  }
}

// Memory curves: per rank the points of the whole run, in time order.
function buildMemory(data, c) {
  data.memory = Array.from({length: data.ranks}, () => ({time: [], live: [], step: []}));
  let rank = 0, step = 0, time = 0, live = 0;
  for (let k = 0; k < c.memRank.length; ++k) {
    rank += c.memRank[k];
    const of = data.memory[rank];
    of.step.push(step += c.memStep[k]);
    of.time.push(time += c.memTime[k]);
    of.live.push(live += c.memLive[k]);
  }
}

// --- reading events --------------------------------------------------------------------------------------------------

const rankOf = (i) => D.lanes[D.laneOf[i]].rank;
const stageOf = (i) => D.labels[D.label[i]].stage;
const isPipelineKind = (kind) => kind <= WEIGHT || kind === RECOMPUTE;
const isWork = (i) => D.kind[i] <= OTHER || D.kind[i] === RECOMPUTE;
const isPipeline = (i) => isPipelineKind(D.kind[i]);
const isP2p = (i) => D.kind[i] === SEND || D.kind[i] === RECV;

// First event of [low, high) for which values[i] > t; values ascend.
function firstAbove(values, low, high, t) {
  while (low < high) {
    const mid = (low + high) >> 1;
    if (values[mid] > t) high = mid; else low = mid + 1;
  }
  return low;
}

// "F12", "SEND_F3", "all-reduce.grads"
function eventName(i) {
  const label = D.labels[D.label[i]];
  return D.mb[i] >= 0 ? label.name + D.mb[i] : label.name;
}

function streamName(lane) {
  return D.streams[lane.stream] || (lane.stream === 0 ? "compute" : `stream ${lane.stream}`);
}
