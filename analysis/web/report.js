"use strict";
// Builds the page from the data in it. Nothing is fetched.

const DATA = JSON.parse(document.getElementById("data").textContent);
const STAGES = { rollout: "rollout", advantage: "credit", old_logprob: "log-probs", update: "gradient" };

function theme() {
  const root = document.documentElement, node = document.getElementById("theme");
  const dark = () => (root.dataset.theme || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light")) === "dark";
  const show = () => { node.setAttribute("aria-pressed", dark()); };
  node.addEventListener("click", () => { root.dataset.theme = dark() ? "light" : "dark"; show(); });
  show();
}

function drawSet(set) {
  const place = (id, ...nodes) => document.getElementById(id).replaceChildren(...nodes);
  const axes = [["updates", "update"], ["episodes", "episodes"], ["seconds", "seconds of wall time"]];
  const words = (lines) => (lines.length ? [html("p", { class: "quiet" }, `Not drawn: ${lines.join(", ")}.`)] : []);
  place("curve-charts", html("div", { class: "charts" }, lineChart("Success of training rollouts", "success, %", set.curves, axes),
    lineChart("Turns", "steps an episode", set.turns, axes)), ...words(set.left_out));
  const stages = Object.keys(STAGES);
  place("timing-charts", html("div", { class: "charts" }, barChart("Seconds an update, by stage (logarithmic)", "seconds", Object.values(STAGES),
    set.timing.map((t) => ({ label: t.label, color: t.color, values: stages.map((s) => t.seconds[s] ?? null), errors: null })), true)));
  place("subtask-charts", html("div", { class: "charts" }, ...set.subtasks.map((list) =>
    barChart(`Success on ${list.name}`, "success, %", list.kinds, list.bars))));
  const views = html("select", { "aria-label": "graph" }), stage = html("div");
  set.views.forEach((entry, i) => views.append(html("option", { value: i }, `${entry.method}, update ${entry.update}: ${entry.view.task || entry.view.group}`)));
  const show = () => stage.replaceChildren(explorer({ ...set.views[Number(views.value)].view, id: `view${views.value}` }));
  views.addEventListener("change", show);
  if (set.views.length) { place("graph-view", html("div", { class: "row controls" }, views), stage); show(); }
  else place("graph-view", html("p", { class: "quiet" }, "No stored rollouts: train with resources.save_rollouts=true to see graphs."));
}

function runsTable() {
  const body = document.querySelector("#run-table tbody"), filter = document.getElementById("filter");
  const draw = () => {
    const words = filter.value.toLowerCase().split(/\s+/).filter(Boolean);
    const shown = DATA.runs.filter((run) => words.every((w) => `${run.method} seed ${run.seed} ${run.state} ${run.benchmark} ${run.model} ${run.protocol} ${run.id}`.toLowerCase().includes(w)));
    document.getElementById("run-count").textContent = `${shown.length} of ${DATA.runs.length} runs`;
    body.replaceChildren(...shown.map((run) => {
      const link = run.href ? html("a", { href: run.href }, run.id) : run.id;
      const config = html("details", {}, html("summary", {}, "config"), html("pre", { tabindex: "0" }, run.config || "see the file"));
      const cells = [link, run.method, run.seed, run.state + (run.reason ? `: ${run.reason}` : ""), run.benchmark, run.model, run.protocol, run.commit, config];
      return html("tr", {}, ...cells.map((cell, i) => html("td", i === 3 ? { class: `state-${run.state}` } : {}, cell)));
    }));
  };
  filter.addEventListener("input", draw);
  draw();
}

theme();
const sets = document.getElementById("set");
DATA.sets.forEach((set, i) => sets.append(html("option", { value: i }, set.label)));
sets.parentElement.hidden = DATA.sets.length < 2;
sets.addEventListener("change", () => drawSet(DATA.sets[Number(sets.value)]));
if (DATA.sets.length) drawSet(DATA.sets[0]);
runsTable();
document.documentElement.dataset.ready = "yes";
