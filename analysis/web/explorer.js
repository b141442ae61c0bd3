"use strict";
// A trajectory graph to walk through. Pointer: drag to move, wheel to zoom, click a state. Keys on the picture: arrows
// move, + and - zoom, 0 shows all, n and p go to the next and previous state, Enter reads it.

function explorer(view) {
  const X = 170, Y = 74, R = 15;
  const stage = svg("svg", { class: "stage", tabindex: "0", role: "application",
    "aria-label": `graph of ${view.nodes.length} states; arrows move, plus and minus zoom, n and p go from state to state` });
  const layer = svg("g"), state = html("div", { class: "state", role: "region", "aria-live": "polite", "aria-label": "state" });
  const at = (node) => [node.x * X, node.y * Y];
  const box = { scale: 1, x: 0, y: 0 };
  const largest = Math.max(...view.edges.map((e) => Math.abs(e.advantage)), 1e-12);
  const most = Math.max(...view.edges.map((e) => e.count), 1);
  const nodes = [], shown = { node: -1, trajectory: -1 };
  const edges = svg("g"), casings = svg("g"), dots = svg("g");
  layer.append(casings, edges, dots);
  stage.append(svg("defs", {}, ...["positive", "negative"].map((sign) =>
    svg("marker", { id: `${view.id || "v"}-${sign}`, viewBox: "0 0 8 8", refX: 7, refY: 4, markerWidth: 9, markerHeight: 9, markerUnits: "userSpaceOnUse", orient: "auto" },
      svg("path", { d: "M0 0L8 4L0 8z", fill: `var(--${sign})` })))), layer);

  function path(edge) {
    const [x1, y1] = at(view.nodes[edge.source]), [x2, y2] = at(view.nodes[edge.target]);
    if (edge.source === edge.target) return `M${x1 - 8} ${y1 - R}C${x1 - 36} ${y1 - 58} ${x1 + 36} ${y1 - 58} ${x1 + 8} ${y1 - R}`;
    const dx = x2 - x1, dy = y2 - y1, far = Math.hypot(dx, dy) || 1, back = dx < 0 ? 0.32 : 0.1;
    const cx = (x1 + x2) / 2 - dy * back, cy = (y1 + y2) / 2 + dx * back, end = Math.hypot(x2 - cx, y2 - cy) || 1;
    return `M${x1} ${y1}Q${cx} ${cy} ${x2 - ((x2 - cx) / end) * (R + 3)} ${y2 - ((y2 - cy) / end) * (R + 3)}`;
  }
  function describe(edge) {
    return `${edge.action}${edge.valid ? "" : " (invalid)"}: advantage ${number(edge.advantage)}, ${edge.count} times`;
  }
  view.edges.forEach((edge) => {
    const sign = edge.advantage < 0 ? "negative" : "positive";
    const line = svg("path", { class: "edge", d: path(edge), stroke: `var(--${sign})`, "marker-end": `url(#${view.id || "v"}-${sign})`,
      "stroke-width": 1 + 4 * (edge.count / most), "stroke-dasharray": edge.valid ? "none" : "6 4",
      opacity: 0.25 + 0.75 * Math.sqrt(Math.abs(edge.advantage) / largest) });
    line.append(svg("title", {}, describe(edge)));
    edges.append(line);
  });
  view.nodes.forEach((node, i) => {
    const [x, y] = at(node), end = ["success", "failure", "mixed"].includes(node.kind);
    const fill = `color-mix(in oklab, var(--high) ${Math.round(100 * node.value)}%, var(--low))`;
    const shape = end ? svg("rect", { x: -R, y: -R, width: 2 * R, height: 2 * R, rx: 3, fill }) : svg("circle", { r: R, fill });
    const group = svg("g", { class: "node", transform: `translate(${x} ${y})`, tabindex: i ? "-1" : "0", role: "button", "data-node": i,
      "aria-label": `${node.kind} ${node.label}, value ${number(node.value)}, ${node.count} visits` });
    const mark = { start: "▶", success: "✓", failure: "✗", mixed: "±" }[node.kind] || String(node.count);
    group.append(svg("title", {}, node.label), shape,
      svg("text", { y: 4, "text-anchor": "middle", style: node.value > 0.55 ? "fill:var(--onhigh)" : "" }, mark));
    group.addEventListener("click", () => choose(i));
    dots.append(group);
    nodes.push(group);
  });

  function move() { layer.setAttribute("transform", `translate(${box.x} ${box.y}) scale(${box.scale})`); }
  function size() { const r = stage.getBoundingClientRect(); return [r.width || 700, r.height || 520]; }
  function fit() {
    const xs = view.nodes.map((n) => n.x * X), ys = view.nodes.map((n) => n.y * Y), [w, h] = size();
    const [x0, x1] = extent(xs), [y0, y1] = extent(ys);
    box.scale = Math.min(2, (w - 70) / (x1 - x0 + 2 * R), (h - 110) / (y1 - y0 + 2 * R));
    box.x = w / 2 - (box.scale * (x0 + x1)) / 2;
    box.y = h / 2 - (box.scale * (y0 + y1)) / 2;
    move();
  }
  function zoom(factor, cx, cy) {
    const [w, h] = size(), x = cx === undefined ? w / 2 : cx, y = cy === undefined ? h / 2 : cy;
    const next = Math.min(8, Math.max(0.05, box.scale * factor)), ratio = next / box.scale;
    box.x = x - (x - box.x) * ratio;
    box.y = y - (y - box.y) * ratio;
    box.scale = next;
    move();
  }
  function goTo(i, focus) {
    const [w, h] = size(), [x, y] = at(view.nodes[i]), px = x * box.scale + box.x, py = y * box.scale + box.y;
    if (px < 30 || py < 30 || px > w - 30 || py > h - 30) { box.x += w / 2 - px; box.y += h / 2 - py; move(); }
    nodes.forEach((group, k) => group.setAttribute("tabindex", k === i ? "0" : "-1"));
    if (focus) nodes[i].focus({ preventScroll: true });
  }
  function actions(title, list, end) {
    if (!list.length) return [];
    const table = html("table", { class: "left" }, html("caption", { class: "quiet" }, title));
    for (const edge of list) {
      const to = button(`${view.nodes[edge[end]].label.slice(0, 34) || "state"}`, false, () => choose(edge[end], true));
      to.removeAttribute("aria-pressed");
      table.append(html("tr", {}, html("td", {}, edge.action + (edge.valid ? "" : " (invalid)")), html("td", {}, number(edge.advantage)),
        html("td", {}, `×${edge.count}`), html("td", {}, to)));
    }
    return [table];
  }
  function choose(i, focus) {
    if (shown.node >= 0) nodes[shown.node].classList.remove("chosen");
    shown.node = i;
    nodes[i].classList.add("chosen");
    goTo(i, focus);
    const node = view.nodes[i];
    const leaving = view.edges.filter((e) => e.source === i).sort((a, b) => b.advantage - a.advantage);
    const coming = view.edges.filter((e) => e.target === i && e.source !== i);
    state.replaceChildren(html("h3", {}, node.label),
      html("p", {}, `${node.kind}; value ${number(node.value)}; ${node.count} visits`), html("pre", { tabindex: "0" }, node.text),
      ...actions("actions from here: advantage, executions, next state", leaving, "target"),
      ...actions("reached by", coming, "source"));
  }
  function highlight(which) {
    shown.trajectory = which;
    casings.replaceChildren();
    for (const e of which < 0 ? [] : view.trajectories[which]) {
      casings.append(svg("path", { class: "edge casing", d: path(view.edges[e]), "stroke-width": 10 }));
    }
  }

  stage.addEventListener("wheel", (event) => {
    const r = stage.getBoundingClientRect();
    zoom(Math.exp(-event.deltaY / 400), event.clientX - r.left, event.clientY - r.top);
    event.preventDefault();
  }, { passive: false });
  let drag = null;
  stage.addEventListener("pointerdown", (event) => { drag = { x: event.clientX, y: event.clientY, id: event.pointerId, moved: false }; });
  stage.addEventListener("pointermove", (event) => {
    if (!drag) return;
    const dx = event.clientX - drag.x, dy = event.clientY - drag.y;
    if (!drag.moved && Math.hypot(dx, dy) < 4) return;
    if (!drag.moved) { drag.moved = true; stage.setPointerCapture(drag.id); stage.classList.add("moving"); }
    box.x += dx; box.y += dy; drag.x = event.clientX; drag.y = event.clientY;
    move();
  });
  for (const name of ["pointerup", "pointercancel"]) stage.addEventListener(name, () => { drag = null; stage.classList.remove("moving"); });
  stage.addEventListener("keydown", (event) => {
    const focused = nodes.indexOf(document.activeElement), pan = { ArrowLeft: [60, 0], ArrowRight: [-60, 0], ArrowUp: [0, 60], ArrowDown: [0, -60] }[event.key];
    const current = focused >= 0 ? focused : shown.node;
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (pan) { box.x += pan[0]; box.y += pan[1]; move(); }
    else if (event.key === "+" || event.key === "=") zoom(1.25);
    else if (event.key === "-") zoom(0.8);
    else if (event.key === "0") fit();
    else if (event.key === "n") goTo((current + 1) % nodes.length, true);
    else if (event.key === "p") goTo((Math.max(current, 0) - 1 + nodes.length) % nodes.length, true);
    else if ((event.key === "Enter" || event.key === " ") && focused >= 0) choose(focused);
    else return;
    event.preventDefault();
  });

  const picker = html("select", { "aria-label": "highlighted trajectory" }, html("option", { value: "-1" }, "no trajectory highlighted"));
  view.names.forEach((name, i) => picker.append(html("option", { value: i }, `trajectory ${name}${view.success[i] ? ", solved" : ""}`)));
  picker.addEventListener("change", () => highlight(Number(picker.value)));
  const tools = html("div", { class: "row controls" });
  for (const [label, words, action] of [["+", "zoom in", () => zoom(1.25)], ["−", "zoom out", () => zoom(0.8)], ["all", "show all", fit]]) {
    const tool = button(label, false, action);
    tool.removeAttribute("aria-pressed");
    tool.setAttribute("aria-label", words);
    tools.append(tool);
  }
  tools.append(picker);
  state.append(html("p", { class: "quiet" }, "Click a state, or Tab to the picture and press n and Enter."));
  const solved = view.success.filter(Boolean).length;
  const head = html("p", { class: "quiet" }, `${view.task || "group " + view.group}: ${view.estimator}, ${view.nodes.length} states, ` +
    `${view.trajectories.length} trajectories (${solved} solved). Darker states are nearer to success; blue actions are credited, ` +
    "orange ones blamed, dashed ones invalid; width is the number of executions.");
  const root = html("div", {}, head, tools, html("div", { class: "explorer" }, stage, state));
  requestAnimationFrame(fit);
  return root;
}
