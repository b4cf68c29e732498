// Plots of values over time: a picture with bars, and the same values as a table.

import { h, table } from "./ui.js";

const NAMESPACE = "http://www.w3.org/2000/svg";
const WIDTH = 720, HEIGHT = 220, LEFT = 72, RIGHT = 16, BOTTOM = 28, TOP = 12;

function svg(tag, attributes, ...children) {
  const node = document.createElementNS(NAMESPACE, tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.append(...children.flat());
  return node;
}

// Steps of 1, 2 or 5 times a power of the base, such that about four of them reach the highest value.
export function stepFor(highest, base = 10) {
  const least = Math.max(1, highest / 4);
  const power = base ** Math.floor(Math.log(least) / Math.log(base) + 1e-9);
  const factors = base === 1024 ? [1, 2, 5, 10, 20, 50, 100, 200, 500] : [1, 2, 5];
  return (factors.find((factor) => factor * power >= least - 1e-9) || base) * power;
}

// `series` are {name, values, className}, one value for each of `labels`; they are drawn one on top of the other.
// `show` writes a value, `axis` says which labels are written below.
export function plot(title, labels, series, { show, base = 10, axis = () => true }) {
  const sums = labels.map((_, i) => series.reduce((sum, { values }) => sum + values[i], 0));
  const highest = Math.max(...sums);
  const step = stepFor(highest, base);
  const top = Math.max(step, Math.ceil(highest / step) * step);
  const y = (value) => TOP + (HEIGHT - TOP - BOTTOM) * (1 - value / top);
  const slot = (WIDTH - LEFT - RIGHT) / labels.length;
  const lines = [];
  for (let value = 0; value <= top; value += step) {
    lines.push(svg("line", { class: "grid", x1: LEFT, x2: WIDTH - RIGHT, y1: y(value), y2: y(value) }),
      svg("text", { x: LEFT - 8, y: y(value) + 4, "text-anchor": "end" }, show(value)));
  }
  const bars = labels.flatMap((label, i) => {
    let below = 0;
    return series.filter(({ values }) => values[i] > 0).map(({ name, values, className }) => {
      const from = y(below);
      below += values[i];
      const bar = svg("rect", { class: className, x: LEFT + i * slot + slot * 0.12, width: slot * 0.76,
        y: y(below), height: Math.max(1, from - y(below)) });
      bar.append(svg("title", {}, `${label}, ${name}: ${show(values[i])}`));
      return bar;
    });
  });
  const names = labels.map((label, i) => (axis(i)
    ? svg("text", { x: LEFT + (i + 0.5) * slot, y: HEIGHT - 8, "text-anchor": "middle" }, label) : null)).filter(Boolean);
  const total = (values) => values.reduce((sum, value) => sum + value, 0);
  const summary = `${title}, from ${labels[0]} to ${labels.at(-1)}: ` +
    `${series.map(({ name, values }) => `${name} ${show(total(values))}`).join(", ")}. The table below has all values.`;
  const picture = svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": summary }, lines, bars, names);
  const legend = series.length < 2 ? null : h("ul", { class: "legend", "aria-hidden": "true" },
    series.map(({ name, className }) => h("li", {}, svg("svg", { viewBox: "0 0 12 12" },
      svg("rect", { class: className, width: 12, height: 12 })), name)));
  const rows = labels.map((label, i) => [label, ...series.map(({ values }) => show(values[i]))])
    .filter((_, i) => sums[i] > 0);
  return h("figure", { class: "plot" }, h("figcaption", {}, title), legend, picture,
    h("details", {}, h("summary", {}, `${title} as a table`),
      table("Times without requests are left out.", ["Time", ...series.map(({ name }) => name)], rows, "There were no requests.")));
}
