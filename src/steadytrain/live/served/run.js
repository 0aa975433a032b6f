// One run, read again while it goes on and the page is looked at. Text from the run only ever becomes text nodes.
"use strict";
const EVERY_MS = 1500;
const OVER_MS = 10000; // a diagnosis may still add to a run that is over
const OVER = ["finished", "stopped", "failed", "killed"];
const SIGNS = { running: "▶", finished: "✓", stopped: "■", failed: "✗", killed: "✗" };
const CURVES = ["loss", "gradient_norm"];
const LAYERS_SHOWN = 60;
const LOG_RATIO_MIN = 50;
const KEY_SHARE = 0.25;
const AROUND = 64; // steps on each side of a step that the address names
const base = `/run/${document.body.dataset.run}`;
const drawn = {};
let span = null; // the steps that are shown, null: the whole run
let marked = null; // the step that the address names
let state = null;

const at = (id) => document.getElementById(id);
const short = (value) => (typeof value === "number" ? plain(value) : value === null ? "-" : String(value));
const plain = (value) => (Math.abs(value) >= 1e6 || (value !== 0 && Math.abs(value) < 1e-4) ? value.toExponential(2) : String(Number(value.toPrecision(4))));
const share = (value) => `${Number((100 * value).toPrecision(2))} %`;

function told(id, text, kind) {
  at(id).textContent = text;
  at(id).className = kind || "";
}

function duration(seconds) {
  if (seconds < 60) return `${seconds.toFixed(seconds < 10 ? 1 : 0)} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ${Math.floor(seconds % 60)} s`;
  if (seconds < 86400) return `${Math.floor(seconds / 3600)} h ${Math.floor((seconds % 3600) / 60)} min`;
  return `${Math.floor(seconds / 86400)} d ${Math.floor((seconds % 86400) / 3600)} h`;
}

function cell(text, kind, label) {
  const made = document.createElement("td");
  made.textContent = text;
  if (kind) made.className = kind;
  if (label) made.dataset.label = label;
  return made;
}

function explained(name, more) {
  const made = cell("");
  made.append(Object.assign(document.createElement("a"), { href: `/explain/${encodeURIComponent(name)}`, textContent: name }), more);
  return made;
}

function stepLink(one) {
  const text = one.first_step === one.last_step ? `step ${one.first_step}` : `steps ${one.first_step} to ${one.last_step}`;
  const made = cell("");
  made.append(Object.assign(document.createElement("a"), { href: `#step-${one.first_step}`, textContent: text }));
  return made;
}

// "drop-batch (3), unchanged": a trial runs again with another seed.
function counted(names) {
  const times = new Map();
  for (const name of names) times.set(name, (times.get(name) || 0) + 1);
  return [...times].map(([name, count]) => (count > 1 ? `${name} (${count})` : name)).join(", ");
}

function showTrials() {
  at("trials").replaceChildren(...state.trials.flatMap((one) => [
    Object.assign(document.createElement("h2"), { textContent: one.incident ? `Trials of incident ${one.incident}` : "Trials of the run" }),
    Object.assign(document.createElement("p"), { textContent: `${one.finished.length} finished: ${counted(one.finished)}` }),
  ]));
}

function rows(table, made) {
  at(table).querySelector("tbody").replaceChildren(...made);
}

function line(...cells) {
  const made = document.createElement("tr");
  made.append(...cells);
  return made;
}

function showState() {
  document.title = `${state.state}: ${state.run}`;
  told("name", state.run);
  const grave = ["critical", "warning", "note"].filter((name) => state.counts[name]);
  const found = grave.map((name) => `${state.counts[name]} ${name}`).join(", ") || "no symptom seen so far";
  const bad = ["failed", "killed", "stopped"].includes(state.state);
  const status = state.exit_status === null ? "" : ` (exit status ${state.exit_status})`;
  told("state", `${SIGNS[state.state] || "?"} ${state.state}${status}: ${found}`, bad || state.counts.critical ? "critical" : state.counts.warning ? "warning" : "good");
  const pace = [state.step === null ? "no step yet" : `step ${state.step.toLocaleString("en")}`];
  if (state.step !== null && state.steps_planned) pace[0] += ` of ${state.steps_planned.toLocaleString("en")}`;
  if (typeof state.steps_per_s === "number") pace.push(state.steps_per_s >= 1 ? `${short(state.steps_per_s)} steps/s` : `${duration(1 / state.steps_per_s)} a step`);
  if (typeof state.eta_s === "number") pace.push(`${duration(state.eta_s)} left`);
  if (state.stalled) pace.push(`NO STEP FOR ${duration(state.silent_s)}`);
  if (state.learning_rate !== null) pace.push(`lr ${short(state.learning_rate)}`);
  if (state.data_wait_share > 0.01) pace.push(`${share(state.data_wait_share)} of the time waits for data`);
  told("pace", pace.join(" · "), state.stalled ? "warning" : "");
  at("page").href = `${base}/page`;
  at("incidents").replaceChildren(...state.incidents.flatMap((path) => {
    const name = path.split("/").pop();
    const link = Object.assign(document.createElement("a"), { href: `${base}/incident/${encodeURIComponent(name)}`, textContent: `incident ${name}` });
    return [" · ", link];
  }));
  const numbers = state.precision;
  const parts = [];
  if (numbers.loss_scale !== null) parts.push(`loss scale ${short(numbers.loss_scale)} (${numbers.scaler_skips || 0} steps skipped)`);
  if (numbers.overflow_share) parts.push(`${share(numbers.overflow_share)} of gradients not finite`);
  if (numbers.underflow_share) parts.push(`${share(numbers.underflow_share)} of gradients underflow`);
  if (numbers.clip_count !== null) parts.push(`clipped ${numbers.clip_count} times`);
  told("precision", parts.length ? `precision: ${parts.join(" · ")}` : "");
  told("machine", Object.entries(state.machine).map(([name, values]) => device(name, values)).filter(Boolean).join(" · "));
  rows("symptoms", state.symptoms.map((one) => line(
    cell(one.severity, one.severity),
    explained(one.name, one.rank ? ` (rank ${one.rank})` : ""),
    stepLink(one),
    cell(one.message),
  )));
  at("notes").replaceChildren(...state.notes.map((note) => Object.assign(document.createElement("li"), { textContent: note })));
  showTrials();
  showLayers();
}

function device(name, values) {
  const parts = [];
  const busy = values.busy_share ?? values.cpu_busy_share;
  if (typeof busy === "number") parts.push(`${share(busy)} busy`);
  const gib = (size) => short(size / 2 ** 30);
  if (values.memory_total_bytes) parts.push(`${gib(values.memory_used_bytes)} of ${gib(values.memory_total_bytes)} GiB`);
  if (values.available_memory_bytes) parts.push(`${gib(values.available_memory_bytes)} GiB free`);
  if (values.temperature_c) parts.push(`${Math.round(values.temperature_c)} C`);
  for (const why of ["power", "heat", "hardware"]) if (values[`slowed_by_${why}`]) parts.push(`SLOWED BY ${why.toUpperCase()}`);
  return parts.length ? `${name} ${parts.join(", ")}` : "";
}

function showLayers() {
  const wanted = at("filter").value.toLowerCase();
  const found = state.layers.filter((layer) => layer.name.toLowerCase().includes(wanted));
  at("layers-told").textContent = `${Math.min(found.length, LAYERS_SHOWN)} of ${state.layers_total}` + (state.layers_step === null ? "" : ` at step ${state.layers_step.toLocaleString("en")}`);
  rows("layers", found.slice(0, LAYERS_SHOWN).map((layer) => line(
    cell(layer.name),
    layer.not_finite ? cell("NOT FINITE", "critical", "gradient") : cell(short(layer.gradient_norm), "number", "gradient"),
    cell(short(layer.peak_over_usual), "number", "peak/usual"),
    cell(short(layer.update_ratio), "number", "update/weight"),
  )));
}

function scaleOf(curve) {
  const low = Math.min(...curve.smallest.filter((value) => value !== null));
  const high = Math.max(...curve.largest.filter((value) => value !== null));
  const logarithmic = low > 0 && high / low >= LOG_RATIO_MIN;
  const height = (value) => (logarithmic ? Math.log(value) : value);
  const bottom = height(low), reach = height(high) - bottom;
  return { low, high, logarithmic, place: (value) => (reach > 0 ? (height(value) - bottom) / reach : 0.5) };
}

function draw(signal, curve, chosen) {
  const canvas = at(signal), ratio = window.devicePixelRatio || 1;
  const width = canvas.clientWidth, height = canvas.clientHeight, pen = canvas.getContext("2d");
  canvas.width = width * ratio;
  canvas.height = height * ratio;
  pen.scale(ratio, ratio);
  if (!curve.count) { at(`${signal}-told`).textContent = "nothing measured here"; return; }
  const style = getComputedStyle(document.body), colour = (name) => style.getPropertyValue(name).trim();
  const known = curve.smallest.some((value) => value !== null);
  const scale = known ? scaleOf(curve) : null;
  const edge = 12, x = (index) => (curve.count > 1 ? (index / (curve.count - 1)) * (width - 2) + 1 : width / 2);
  const y = (value) => height - edge - scale.place(value) * (height - 2 * edge);
  let bad = 0;
  pen.strokeStyle = pen.fillStyle = colour("--line");
  pen.globalAlpha = 0.35;
  for (let index = 0; index < curve.count; index++) {
    bad += curve.bad[index];
    if (curve.smallest[index] === null) continue;
    const top = y(curve.largest[index]);
    pen.fillRect(x(index) - 0.5, top, 1, Math.max(1, y(curve.smallest[index]) - top));
  }
  pen.globalAlpha = 1;
  pen.lineWidth = 1.5;
  pen.beginPath();
  let open = false;
  for (let index = 0; index < curve.count; index++) {
    if (curve.sample[index] === null) { open = false; continue; }
    pen[open ? "lineTo" : "moveTo"](x(index), y(curve.sample[index]));
    open = true;
  }
  pen.stroke();
  pen.fillStyle = colour("--critical");
  pen.font = "bold 12px sans-serif";
  for (let index = 0; index < curve.count; index++) if (curve.bad[index]) pen.fillText("✗", Math.min(x(index), width - 10), 11);
  if (marked !== null && marked >= curve.first && marked <= curve.last) {
    const place = curve.last > curve.first ? ((marked - curve.first) / (curve.last - curve.first)) * (width - 2) + 1 : width / 2;
    pen.fillStyle = colour("--line");
    for (let top = 0; top < height; top += 8) pen.fillRect(place - 0.5, top, 1, 4);
  }
  if (chosen) {
    pen.fillStyle = colour("--critical");
    pen.globalAlpha = 0.2;
    pen.fillRect(Math.min(...chosen), 0, Math.abs(chosen[1] - chosen[0]), height);
    pen.globalAlpha = 1;
  }
  const range = known ? `from ${short(scale.low)} to ${short(scale.high)}${scale.logarithmic ? ", log scale" : ""}` : "no finite value";
  at(`${signal}-told`).textContent = `${range}${bad ? `, ${bad} not finite` : ""}, steps ${curve.first.toLocaleString("en")} to ${curve.last.toLocaleString("en")}`;
}

async function readCurve(signal) {
  const columns = Math.max(50, Math.min(2000, at(signal).clientWidth));
  const asked = span ? `&first=${span[0]}&last=${span[1]}` : "";
  const answer = await fetch(`${base}/curve.json?signal=${signal}&columns=${columns}${asked}`);
  if (!answer.ok) throw new Error(`status ${answer.status}`);
  drawn[signal] = await answer.json();
  draw(signal, drawn[signal]);
}

async function read() {
  try {
    const answer = await fetch(`${base}/state.json`);
    if (!answer.ok) throw new Error(answer.status === 404 ? "the run is gone or damaged" : `status ${answer.status}`);
    state = await answer.json();
    showState();
    await Promise.all(CURVES.map(readCurve));
  } catch (error) {
    told("state", `not shown: ${error.message}`, "critical");
  }
}

function zoom(first, last) {
  const run = drawn.loss && drawn.loss.run ? drawn.loss.run : [0, 0];
  const low = Math.max(run[0], Math.round(first)), high = Math.min(run[1], Math.round(last));
  span = high - low < 2 || (low <= run[0] && high >= run[1]) ? (high - low < 2 ? span : null) : [low, high];
  Promise.all(CURVES.map(readCurve)).catch((error) => told("state", `not shown: ${error.message}`, "critical"));
}

// "#step-119" leads to the steps around it, "#steps-100-200" to those.
function follow() {
  const one = /^#step-(\d{1,15})$/.exec(location.hash), many = /^#steps-(\d{1,15})-(\d{1,15})$/.exec(location.hash);
  marked = one ? Number(one[1]) : null;
  if (one) zoom(marked - AROUND, marked + AROUND);
  else if (many) zoom(Number(many[1]), Number(many[2]));
}

function zoomAndSay(first, last) {
  zoom(first, last);
  marked = null;
  history.replaceState(null, "", span ? `#steps-${span[0]}-${span[1]}` : location.pathname + location.search);
}

function shown() {
  return span || (drawn.loss && drawn.loss.run) || [0, 0];
}

for (const signal of CURVES) {
  const canvas = at(signal);
  let from = null;
  const stepAt = (place) => { const curve = drawn[signal]; return curve.first + (place / canvas.clientWidth) * (curve.last - curve.first); };
  canvas.addEventListener("pointerdown", (event) => { if (drawn[signal]) { from = event.offsetX; canvas.setPointerCapture(event.pointerId); } });
  canvas.addEventListener("pointermove", (event) => { if (from !== null) draw(signal, drawn[signal], [from, event.offsetX]); });
  canvas.addEventListener("pointerup", (event) => {
    if (from === null) return;
    const ends = [from, event.offsetX].sort((left, right) => left - right);
    from = null;
    if (ends[1] - ends[0] > 4) zoomAndSay(stepAt(ends[0]), stepAt(ends[1]));
    else draw(signal, drawn[signal]);
  });
  canvas.addEventListener("keydown", (event) => {
    const [first, last] = shown(), by = (last - first) * KEY_SHARE;
    const moves = { ArrowLeft: [first - by, last - by], ArrowRight: [first + by, last + by], "+": [first + by, last - by], "-": [first - by, last + by] };
    if (moves[event.key]) { event.preventDefault(); zoomAndSay(...moves[event.key]); }
  });
}
at("whole").addEventListener("click", () => zoomAndSay(-Infinity, Infinity));
window.addEventListener("hashchange", () => { follow(); at("loss").scrollIntoView({ block: "center" }); });
at("filter").addEventListener("input", () => { if (state) showLayers(); });
window.addEventListener("resize", () => CURVES.forEach((signal) => drawn[signal] && draw(signal, drawn[signal])));

async function loop(first) {
  if (first || !document.hidden) await read();
  if (first && location.hash) follow();
  setTimeout(loop, state !== null && OVER.includes(state.state) ? OVER_MS : EVERY_MS);
}
document.addEventListener("visibilitychange", () => { if (!document.hidden) read(); });
loop(true);
