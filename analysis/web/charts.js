"use strict";
// Line and bar charts as SVG. A chart is reached with Tab; arrow keys move its cursor, the readout says the values.

const SVG = "http://www.w3.org/2000/svg";

function svg(name, attributes = {}, ...children) {
  const node = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  node.append(...children);
  return node;
}

function html(name, attributes = {}, ...children) {
  const node = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  node.append(...children);
  return node;
}

function button(label, pressed, action) {
  const node = html("button", { type: "button", "aria-pressed": pressed }, label);
  node.addEventListener("click", () => action(node));
  return node;
}

function number(value) {
  if (value === null || value === undefined) return "–";
  const size = Math.abs(value);
  return value.toFixed(size >= 100 ? 0 : size >= 10 ? 1 : size >= 0.1 || size === 0 ? 2 : 4);
}

function ticks(low, high, count) {
  const raw = (high - low) / count || 1;
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map((m) => m * power).find((s) => s >= raw * 0.999);
  const found = [];
  for (let t = Math.ceil(low / step) * step; t <= high + step * 1e-9; t += step) found.push(Number(t.toPrecision(12)));
  return found;
}

function extent(values) {
  return [Math.min(...values), Math.max(...values)];
}

const PLOT = { width: 520, height: 300, left: 54, right: 12, top: 14, bottom: 42 };

function frame(title, xLabel, yLabel) {
  const { width, height, left, top, bottom } = PLOT;
  const root = svg("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", tabindex: "0", "aria-label": title });
  root.append(
    svg("text", { x: width / 2, y: height - 6, "text-anchor": "middle" }, xLabel),
    svg("text", { transform: `translate(13 ${(height - bottom + top) / 2}) rotate(-90)`, "text-anchor": "middle" }, yLabel),
    svg("line", { class: "axis", x1: left, x2: width - PLOT.right, y1: height - bottom, y2: height - bottom }),
  );
  return root;
}

function axes(root, x, y, xs, ys) {
  for (const t of ys) {
    root.append(
      svg("line", { class: "grid", x1: PLOT.left, x2: PLOT.width - PLOT.right, y1: y(t), y2: y(t) }),
      svg("text", { x: PLOT.left - 6, y: y(t) + 4, "text-anchor": "end" }, String(t)),
    );
  }
  for (const t of xs) root.append(svg("text", { x: x(t), y: PLOT.height - PLOT.bottom + 16, "text-anchor": "middle" }, String(t)));
}

// series: [{label, color, dash, x: {name: [..]}, mean, low, high}]; choices: [[key, label]] of x
function lineChart(title, yLabel, series, choices) {
  const known = choices.filter(([key]) => series.some((s) => s.x[key]));
  const state = { x: known.length ? known[0][0] : "", off: new Set() };
  const place = html("div"), legend = html("div", { class: "row controls" }), readout = html("div", { class: "readout", "aria-live": "polite" });
  const box = html("div", { class: "chart" }, html("h3", {}, title));
  const picker = html("div", { class: "row controls", role: "group", "aria-label": "horizontal axis" });
  for (const [key, label] of known) {
    picker.append(button(label, key === state.x, (node) => {
      state.x = key;
      for (const other of picker.children) other.setAttribute("aria-pressed", other === node);
      draw();
    }));
  }
  series.forEach((s, i) => {
    const swatch = html("span", { class: "swatch", style: `border-color:${s.color};border-top-style:${s.dash ? "dashed" : "solid"}` });
    const node = button("", true, () => {
      state.off.has(i) ? state.off.delete(i) : state.off.add(i);
      node.setAttribute("aria-pressed", !state.off.has(i));
      node.classList.toggle("off", state.off.has(i));
      draw();
    });
    node.append(swatch, s.label);
    legend.append(node);
  });
  function draw() {
    const shown = series.filter((s, i) => !state.off.has(i) && s.x[state.x] && s.mean.length);
    const label = (known.find(([key]) => key === state.x) || ["", ""])[1];
    const root = frame(title, label, yLabel);
    place.replaceChildren(root);
    readout.textContent = "";
    if (!shown.length) {
      root.append(svg("text", { x: PLOT.width / 2, y: PLOT.height / 2, "text-anchor": "middle" }, "nothing to draw yet"));
      return;
    }
    const [x0, x1] = extent(shown.flatMap((s) => s.x[state.x]));
    const [y0, y1] = extent(shown.flatMap((s) => [...s.low, ...s.high]));
    const pad = (y1 - y0) * 0.05 || 1;
    const x = (v) => PLOT.left + ((v - x0) / (x1 - x0 || 1)) * (PLOT.width - PLOT.left - PLOT.right);
    const y = (v) => PLOT.height - PLOT.bottom - ((v - y0 + pad) / (y1 - y0 + 2 * pad)) * (PLOT.height - PLOT.bottom - PLOT.top);
    axes(root, x, y, ticks(x0, x1, 6), ticks(y0 - pad, y1 + pad, 5));
    for (const s of shown) {
      const xs = s.x[state.x], point = (values) => xs.map((v, i) => `${x(v).toFixed(1)},${y(values[i]).toFixed(1)}`);
      root.append(svg("polygon", { points: [...point(s.low), ...point(s.high).reverse()].join(" "), fill: s.color, opacity: 0.13 }));
      root.append(svg("polyline", { points: point(s.mean).join(" "), fill: "none", stroke: s.color, "stroke-width": 2, "stroke-dasharray": s.dash || "none" }));
    }
    cursor(root, shown, x, x0, x1, label);
  }
  function cursor(root, shown, x, x0, x1, label) {
    const line = svg("line", { class: "axis", y1: PLOT.top, y2: PLOT.height - PLOT.bottom, "stroke-dasharray": "3 3", visibility: "hidden" });
    root.append(line);
    let at = x0;
    const show = (value) => {
      at = Math.min(x1, Math.max(x0, value));
      line.setAttribute("x1", x(at));
      line.setAttribute("x2", x(at));
      line.setAttribute("visibility", "visible");
      readout.textContent = `${label} ${number(at)}: ` + shown.map((s) => {
        const xs = s.x[state.x];
        let best = 0;
        xs.forEach((v, i) => { if (Math.abs(v - at) < Math.abs(xs[best] - at)) best = i; });
        return `${s.label} ${number(s.mean[best])}`;
      }).join("; ");
    };
    root.addEventListener("pointermove", (event) => {
      const box = root.getBoundingClientRect();
      const inner = ((event.clientX - box.left) / box.width) * PLOT.width;
      show(x0 + ((inner - PLOT.left) / (PLOT.width - PLOT.left - PLOT.right)) * (x1 - x0));
    });
    root.addEventListener("keydown", (event) => {
      const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
      if (step) { show(at + (step * (x1 - x0)) / 25); event.preventDefault(); }
    });
  }
  draw();
  box.append(picker, place, readout, legend);
  return box;
}

// groups: names on the axis; bars: [{label, color, values: [..], errors: [..] or null}]
function barChart(title, yLabel, groups, bars, logarithmic = false) {
  const box = html("div", { class: "chart" }, html("h3", {}, title));
  const root = frame(`${title}: ${bars.map((b) => `${b.label} ${b.values.map(number).join(", ")}`).join("; ")}`, "", yLabel);
  const present = bars.flatMap((b) => b.values.map((v, i) => v === null ? null : v + ((b.errors && b.errors[i]) || 0))).filter((v) => v !== null && (!logarithmic || v > 0));
  box.append(root);
  if (!present.length) {
    root.append(svg("text", { x: PLOT.width / 2, y: PLOT.height / 2, "text-anchor": "middle" }, "nothing to draw yet"));
    return box;
  }
  const map = logarithmic ? Math.log10 : (v) => v;
  const low = logarithmic ? Math.floor(Math.log10(Math.min(...present))) : 0;
  const high = logarithmic ? Math.ceil(Math.log10(Math.max(...present)) + 0.01) : Math.max(...present) * 1.02 || 1;
  const y = (v) => PLOT.height - PLOT.bottom - ((map(v) - low) / (high - low)) * (PLOT.height - PLOT.bottom - PLOT.top);
  const marks = logarithmic ? Array.from({ length: high - low + 1 }, (_, i) => Number((10 ** (low + i)).toPrecision(3))) : ticks(0, high, 5);
  axes(root, () => 0, y, [], marks);
  const width = (PLOT.width - PLOT.left - PLOT.right) / groups.length, bar = (width * 0.8) / bars.length;
  groups.forEach((group, g) => {
    root.append(svg("text", { x: PLOT.left + width * (g + 0.5), y: PLOT.height - PLOT.bottom + 16, "text-anchor": "middle" }, group));
    bars.forEach((b, i) => {
      const value = b.values[g];
      if (value === null || value === undefined || (logarithmic && value <= 0)) return;
      const left = PLOT.left + width * (g + 0.1) + bar * i, top = y(value), error = b.errors && b.errors[g];
      const rect = svg("rect", { x: left, y: top, width: bar * 0.9, height: Math.max(0.5, PLOT.height - PLOT.bottom - top), fill: b.color });
      rect.append(svg("title", {}, `${b.label}, ${group}: ${number(value)}${error ? " ± " + number(error) : ""}`));
      root.append(rect);
      if (error) root.append(svg("line", { class: "axis", x1: left + bar * 0.45, x2: left + bar * 0.45, y1: y(Math.max(0, value - error)), y2: y(value + error) }));
    });
  });
  const legend = html("div", { class: "row" });
  for (const b of bars) legend.append(html("span", {}, html("span", { class: "swatch", style: `border-color:${b.color}` }), b.label));
  box.append(legend);
  return box;
}
