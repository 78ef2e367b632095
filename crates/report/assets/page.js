// Draws the charts of a report from the figures in the page.
"use strict";
(() => {
  const figures = JSON.parse(document.getElementById("figures").textContent);
  const TYPES = ["ok", "fail", "info"];
  const QUANTILES = ["median", "95 %", "99 %", "slowest"];
  const FAMILIES = ["kill", "pause", "partition", "packet", "clock", "disk", "corruption", "membership"];
  // One shape and one dash for each function, in a box from -1 to 1.
  const SHAPES = [
    "M0-1A1 1 0 0 1 0 1A1 1 0 0 1 0-1Z",
    "M0-1.15L1.05.75H-1.05Z",
    "M-.85-.85H.85V.85H-.85Z",
    "M0-1.25L1.05 0 0 1.25-1.05 0Z",
    "M-1-.6L-.6-1 0-.4.6-1 1-.6.4 0 1 .6.6 1 0 .4-.6 1-1 .6-.4 0Z",
    "M-.32-1.1H.32V-.32H1.1V.32H.32V1.1H-.32V.32H-1.1V-.32H-.32Z",
    "M0 1.15L1.05-.75H-1.05Z",
    "M-1.2-.42H1.2V.42H-1.2Z",
    "M-1-1H1L-1 1H1Z",
  ];
  const DASHES = [[], [7, 4], [2, 3], [10, 3, 2, 3], [4, 2], [1, 2], [12, 4], [6, 2, 2, 2, 2, 2], [3, 6]];

  const hidden = { types: new Set(), functions: new Set() };
  const charts = {};
  const points = decodePoints(figures.points);
  let colors = {};

  const one = (id) => document.getElementById(id);
  const make = (name, className, text) => {
    const element = document.createElement(name);
    if (className) element.className = className;
    if (text !== undefined) element.textContent = text;
    return element;
  };

  // ---- figures and how people read them

  function decodePoints(columns) {
    const span = figures.end - figures.begin;
    return {
      count: columns.time.length,
      seconds: Float64Array.from(columns.time, (tick) => figures.begin + (tick / columns.ticks) * span),
      logarithm: Float64Array.from(columns.latency, (thousandths) => thousandths / 1000),
      type: Uint8Array.from(columns.class, (number) => number % 3),
      function: Uint8Array.from(columns.class, (number) => Math.floor(number / 3)),
      operation: columns.operation,
    };
  }

  const digits = (value) => Number(value.toPrecision(3)).toLocaleString("en", { maximumFractionDigits: 6 });

  function duration(nanoseconds) {
    if (nanoseconds === null || nanoseconds === undefined) return "";
    if (nanoseconds < 1e3) return digits(nanoseconds) + " ns";
    if (nanoseconds < 1e6) return digits(nanoseconds / 1e3) + " µs";
    if (nanoseconds < 1e9) return digits(nanoseconds / 1e6) + " ms";
    return digits(nanoseconds / 1e9) + " s";
  }

  // The labels of a logarithmic axis in nanoseconds: powers of ten, and steps between them when there are few.
  const latencyAxis = {
    splits: (_chart, _axis, min, max) => {
      const decades = Math.log10(max / min);
      const factors = decades > 2.5 ? [1] : decades > 1.2 ? [1, 3] : [1, 1.5, 2, 3, 5, 7];
      const found = [];
      for (let power = 10 ** Math.floor(Math.log10(min)); power <= max; power *= 10) {
        found.push(...factors.map((factor) => factor * power).filter((value) => min <= value && value <= max));
      }
      return found;
    },
    filter: (_, splits) => splits,
    values: (_, splits) => splits.map(duration),
  };

  const clock = (seconds) => seconds.toLocaleString("en", { maximumFractionDigits: 6 }) + " s";
  const rate = (value) => (value === null || value === undefined ? "" : digits(value) + "/s");
  const family = (fault) => (FAMILIES.includes(fault.family) ? fault.family : "other");

  function readColors() {
    const style = getComputedStyle(document.documentElement);
    const names = ["ink", "soft", "line", "grid", "surface", "other", "invalid", "q0", "q1", "q2", "q3", ...TYPES, ...FAMILIES];
    colors = Object.fromEntries(names.map((name) => [name, style.getPropertyValue("--" + name).trim()]));
  }

  // ---- what all charts share

  const width = () => Math.max(260, one("charts").clientWidth - (innerWidth <= 640 ? 12 : 28));

  function axis(more) {
    const line = { stroke: colors.grid, width: 1 };
    return { stroke: colors.soft, font: "12px system-ui, sans-serif", grid: line, ticks: line, ...more };
  }

  // Of all charts, so that times stand under each other.
  const axisWidth = () => (innerWidth <= 640 ? 64 : 76);

  function options(id, height, more) {
    const { y, hooks, ...others } = more;
    return {
      width: width(),
      height,
      padding: [6, 14, 0, 0],
      legend: { markers: { width: 2, fill: (chart, series) => chart.series[series].stroke(chart, series) } },
      cursor: { sync: { key: "time" }, drag: { x: true, y: false }, y: false, points: { size: 7 } },
      scales: { x: { time: false, range: (_, min, max) => [min, max] }, y: y.scale },
      axes: [
        axis({ values: (_, splits) => splits.map(clock), space: 70, size: 34 }),
        axis({ size: axisWidth(), ...y.axis }),
      ],
      hooks: {
        ...hooks,
        drawClear: [shadeFaults, shadeFindings],
        draw: [...(hooks?.draw || []), nameFaults, markFindings],
        setScale: [sameTime],
      },
      ...others,
    };
  }

  // A stretch of time chosen in one chart is chosen in all.
  let choosing = false;
  function sameTime(chart, scale) {
    if (scale !== "x" || choosing) return;
    choosing = true;
    const { min, max } = chart.scales.x;
    for (const other of Object.values(charts)) {
      if (other !== chart && (other.scales.x.min !== min || other.scales.x.max !== max)) {
        other.setScale("x", { min, max });
      }
    }
    choosing = false;
  }

  function clipped(chart, draw) {
    const { ctx, bbox } = chart;
    ctx.save();
    ctx.beginPath();
    ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
    ctx.clip();
    draw(ctx, bbox);
    ctx.restore();
  }

  // ---- faults

  // Left and right edge of a fault in pixels of the canvas; null when it lies outside.
  function edges(chart, fault) {
    const { min, max } = chart.scales.x;
    if (fault.end < min || fault.begin > max) return null;
    const left = chart.valToPos(Math.max(fault.begin, min), "x", true);
    const right = chart.valToPos(Math.min(fault.end, max), "x", true);
    return [left, Math.max(right, left + devicePixelRatio)];
  }

  function shadeFaults(chart) {
    if (chart.root.dataset.lanes) return;
    clipped(chart, (ctx, bbox) => {
      for (const fault of figures.faults) {
        const found = edges(chart, fault);
        if (!found) continue;
        ctx.fillStyle = colors[family(fault)];
        ctx.globalAlpha = fault.instant ? 0.6 : 0.13;
        ctx.fillRect(found[0], bbox.top, found[1] - found[0], bbox.height);
      }
    });
  }

  // Names at the top, where they do not run into each other.
  function nameFaults(chart) {
    if (chart.root.dataset.lanes) return;
    clipped(chart, (ctx, bbox) => {
      const pixel = devicePixelRatio;
      ctx.font = `600 ${11 * pixel}px system-ui, sans-serif`;
      ctx.textAlign = "left";
      ctx.textBaseline = "top";
      ctx.lineJoin = "round";
      let free = -Infinity;
      for (const fault of figures.faults) {
        const found = edges(chart, fault);
        if (!found) continue;
        const label = fault.name;
        const begin = Math.max(found[0] + 3 * pixel, bbox.left + 2 * pixel);
        if (begin < free) continue;
        ctx.strokeStyle = colors.surface;
        ctx.lineWidth = 3 * pixel;
        ctx.strokeText(label, begin, bbox.top + 2 * pixel);
        ctx.fillStyle = colors[family(fault)];
        ctx.fillText(label, begin, bbox.top + 2 * pixel);
        free = begin + ctx.measureText(label).width + 8 * pixel;
      }
    });
  }

  // ---- findings

  // The time of a finding: a band in the lower fifth, as faults are shaded over the whole height.
  function shadeFindings(chart) {
    if (chart.root.dataset.lanes) return;
    clipped(chart, (ctx, bbox) => {
      for (const finding of figures.findings) {
        const found = edges(chart, finding);
        if (!found) continue;
        const height = bbox.height / 5;
        ctx.fillStyle = colors.invalid;
        ctx.globalAlpha = 0.16;
        ctx.fillRect(found[0], bbox.top + bbox.height - height, found[1] - found[0], height);
      }
    });
  }

  // A line where each came to light, and names below.
  function markFindings(chart) {
    if (chart.root.dataset.lanes) return;
    clipped(chart, (ctx, bbox) => {
      const pixel = devicePixelRatio;
      const bottom = bbox.top + bbox.height;
      const placed = figures.findings.map((finding) => ({ name: finding.name, at: edges(chart, finding)?.[1] }));
      const marks = placed.filter((mark) => mark.at !== undefined).sort((one, other) => one.at - other.at);
      ctx.strokeStyle = colors.invalid;
      ctx.lineWidth = 1.5 * pixel;
      ctx.globalAlpha = marks.length > 12 ? 0.45 : 1;
      ctx.setLineDash([4 * pixel, 3 * pixel]);
      for (const mark of marks) {
        ctx.beginPath();
        ctx.moveTo(mark.at, bbox.top);
        ctx.lineTo(mark.at, bottom);
        ctx.stroke();
      }
      ctx.setLineDash([]);
      ctx.font = `600 ${11 * pixel}px system-ui, sans-serif`;
      ctx.textAlign = "left";
      ctx.textBaseline = "bottom";
      const wide = (label) => ctx.measureText(label).width;
      for (const { at, label } of findingLabels(marks, wide, 12 * pixel)) {
        const begin = Math.max(bbox.left + 3 * pixel, Math.min(at + 4 * pixel, bbox.left + bbox.width - wide(label) - 3 * pixel));
        // Points and lines lie under the name.
        ctx.globalAlpha = 0.85;
        ctx.fillStyle = colors.surface;
        ctx.fillRect(begin - 2 * pixel, bottom - 17 * pixel, wide(label) + 4 * pixel, 15 * pixel);
        ctx.globalAlpha = 1;
        ctx.fillStyle = colors.invalid;
        ctx.fillText(label, begin, bottom - 3 * pixel);
      }
    });
  }

  // Findings whose names would run into each other share a label, which says how many they are.
  function findingLabels(marks, wide, gap) {
    const groups = [];
    for (const mark of marks) {
      const last = groups.at(-1);
      if (last && mark.at < last.at + wide(findingLabel(last.names)) + gap) last.names.push(mark.name);
      else groups.push({ at: mark.at, names: [mark.name] });
    }
    return groups.map((group) => ({ at: group.at, label: findingLabel(group.names) }));
  }

  function findingLabel(names) {
    if (names.length === 1) return "✗ " + names[0];
    return new Set(names).size === 1 ? `✗ ${names.length} × ${names[0]}` : `✗ ${names.length} findings`;
  }

  // Links of findings choose their time in all charts, with a second before and after.
  function linkFindings() {
    for (const link of document.querySelectorAll("a[data-begin]")) {
      link.addEventListener("click", () => {
        const min = Math.max(figures.begin, Number(link.dataset.begin) - 1);
        const max = Math.min(figures.end, Number(link.dataset.end) + 1);
        for (const chart of Object.values(charts)) chart.setScale("x", { min, max });
      });
    }
  }

  // A row for each family and target; for each family when there are too many targets.
  function lanes() {
    const by = (name) => {
      const rows = new Map();
      for (const fault of figures.faults) {
        const key = name(fault);
        if (!rows.has(key)) rows.set(key, []);
        rows.get(key).push(fault);
      }
      return rows;
    };
    const fine = by((fault) => (fault.name + " " + fault.target).trim());
    const rows = fine.size <= 12 ? fine : by((fault) => fault.family);
    const sorted = [...rows].sort(([a], [b]) => (a < b ? -1 : 1));
    const found = figures.findings.map((finding) => ({ ...finding, name: "✗ " + finding.name, target: "", paint: "invalid" }));
    return found.length ? [...sorted, ["✗ findings", found]] : sorted;
  }

  const laneFont = "11px system-ui, sans-serif";

  // The beginning and the end of a text, as much as there is room for beside the lanes; the tip says all.
  function fitted(text) {
    const ruler = make("canvas").getContext("2d");
    ruler.font = laneFont;
    const part = (kept) => {
      const left = Math.ceil(kept / 2);
      return text.slice(0, left).replace(/[ …]+$/, "") + "…" + text.slice(text.length - kept + left).replace(/^[ …]+/, "");
    };
    const room = axisWidth() - 12;
    if (ruler.measureText(text).width <= room) return text;
    let kept = text.length - 1;
    while (kept > 2 && ruler.measureText(part(kept)).width > room) kept -= 1;
    return part(kept);
  }

  function buildFaults() {
    if (!one("faults")) return;
    const rows = lanes();
    if (rows.length === 0) return;
    const height = 22;
    const place = (chart, row) => chart.bbox.top + (row + 0.5) * (chart.bbox.height / rows.length);
    const draw = (chart) => clipped(chart, (ctx) => {
      const bar = 13 * devicePixelRatio;
      rows.forEach(([, faults], row) => {
        for (const fault of faults) {
          const found = edges(chart, fault);
          if (!found) continue;
          const wide = Math.max(found[1] - found[0], 3 * devicePixelRatio);
          ctx.fillStyle = colors[fault.paint || family(fault)];
          ctx.fillRect(found[0], place(chart, row) - bar / 2, wide, bar);
        }
      });
    });
    const tell = (chart) => {
      const { left, top } = chart.cursor;
      if (left < 0) return null;
      const row = Math.floor((top / chart.over.clientHeight) * rows.length);
      const slack = chart.posToVal(left + 4, "x") - chart.posToVal(left, "x");
      const at = chart.posToVal(left, "x");
      const near = (fault) => fault.begin - slack <= at && at <= fault.end + slack;
      const found = (rows[row]?.[1] || []).filter(near);
      const line = (fault) => {
        const stretch = fault.instant ? `at ${clock(fault.begin)}` : `${clock(fault.begin)} to ${clock(fault.end)}`;
        return `${fault.name} ${fault.target}\n${stretch}`;
      };
      return found.length ? found.slice(0, 4).map(line).join("\n") : null;
    };
    const splits = rows.map((_, row) => rows.length - row - 0.5);
    const names = rows.map(([name]) => fitted(name));
    const more = {
      legend: { show: false },
      y: {
        scale: { range: () => [0, rows.length] },
        axis: { splits: () => splits, values: () => names, grid: { show: false }, ticks: { show: false },
          font: laneFont },
      },
      series: [{}, { show: false }],
      hooks: { init: [(chart) => (chart.root.dataset.lanes = "yes")], draw: [draw], ...tipHooks(tell) },
    };
    show("faults", options("faults", rows.length * height + 42, more), [[figures.begin, figures.last], [null, null]]);
  }

  // ---- tips

  function tipHooks(tell) {
    let tip;
    const ready = (chart) => {
      tip = make("div", "tip");
      tip.hidden = true;
      chart.over.append(tip);
      chart.over.addEventListener("mouseleave", () => (tip.hidden = true));
    };
    const setCursor = (chart) => {
      if (!tip) return;
      // Only where the pointer is, not in the charts that follow it.
      const told = chart.over.matches(":hover") ? tell(chart) : null;
      tip.hidden = !told;
      if (!told) return;
      tip.textContent = told;
      const right = chart.cursor.left > chart.over.clientWidth / 2;
      tip.style.left = right ? "" : chart.cursor.left + 14 + "px";
      tip.style.right = right ? chart.over.clientWidth - chart.cursor.left + 14 + "px" : "";
      tip.style.top = Math.max(0, chart.cursor.top - 12) + "px";
    };
    return { ready: [ready], setCursor: [setCursor] };
  }

  // ---- latency of each operation

  function stamps(radius) {
    const size = Math.ceil(radius * 2.6);
    return TYPES.map((type) =>
      SHAPES.map((shape) => {
        const stamp = make("canvas");
        stamp.width = stamp.height = size;
        const ctx = stamp.getContext("2d");
        ctx.translate(size / 2, size / 2);
        ctx.scale(radius, radius);
        ctx.globalAlpha = type === "info" ? 0.85 : 0.55;
        ctx.fillStyle = colors[type];
        ctx.fill(new Path2D(shape));
        return stamp;
      }));
  }

  const visible = (at) => !hidden.types.has(points.type[at]) && !hidden.functions.has(points.function[at]);

  // The first point at or after this many seconds.
  function from(seconds) {
    let [low, high] = [0, points.count];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (points.seconds[middle] < seconds) low = middle + 1;
      else high = middle;
    }
    return low;
  }

  function latencyScale() {
    let [low, high] = [Infinity, -Infinity];
    for (const value of points.logarithm) {
      low = Math.min(low, value);
      high = Math.max(high, value);
    }
    if (low > high) [low, high] = [6, 7];
    return [10 ** (low - 0.15), 10 ** (high + 0.3)];
  }

  function buildLatency() {
    const [least, most] = latencyScale();
    const [low, high] = [Math.log10(least), Math.log10(most)];
    const radius = points.count > 8000 ? 2.3 : points.count > 1000 ? 2.8 : 3.4;
    const marks = stamps(radius * devicePixelRatio);
    const place = (chart, at, box) => {
      const { min, max } = chart.scales.x;
      const x = box.left + ((points.seconds[at] - min) / (max - min)) * box.width;
      const y = box.top + ((high - points.logarithm[at]) / (high - low)) * box.height;
      return [x, y];
    };
    const draw = (chart) => clipped(chart, (ctx, bbox) => {
      const [first, last] = [from(chart.scales.x.min), from(chart.scales.x.max + 1e-9)];
      for (let type = 0; type < TYPES.length; type += 1) {
        for (let at = first; at < last; at += 1) {
          if (points.type[at] !== type || !visible(at)) continue;
          const [x, y] = place(chart, at, bbox);
          const mark = marks[type][points.function[at]];
          ctx.drawImage(mark, Math.round(x - mark.width / 2), Math.round(y - mark.width / 2));
        }
      }
    });
    const tell = (chart) => {
      const { left, top } = chart.cursor;
      const box = { left: 0, top: 0, width: chart.over.clientWidth, height: chart.over.clientHeight };
      const [first, last] = [from(chart.posToVal(left - 10, "x")), from(chart.posToVal(left + 10, "x"))];
      let [nearest, best] = [-1, 10];
      for (let at = first; at < last; at += 1) {
        if (!visible(at)) continue;
        const [x, y] = place(chart, at, box);
        const distance = Math.hypot(x - left, y - top);
        if (distance < best) [nearest, best] = [at, distance];
      }
      if (nearest < 0) return null;
      const name = figures.functions[points.function[nearest]];
      const index = points.operation[nearest].toLocaleString("en");
      const latency = duration(10 ** points.logarithm[nearest]);
      return `op ${index}: ${name}, ${TYPES[points.type[nearest]]}\n${latency}, invoked at ${clock(points.seconds[nearest])}`;
    };
    const more = {
      legend: { show: false },
      y: {
        scale: { distr: 3, range: () => [least, most] },
        axis: latencyAxis,
      },
      series: [{}, { show: false }],
      hooks: { draw: [draw], ...tipHooks(tell) },
    };
    show("latency", options("latency", 340, more), [[figures.begin, figures.last], [null, null]]);
  }

  // ---- quantiles and rates

  // The middle of each window.
  const middles = (count) =>
    Array.from({ length: count }, (_, at) => {
      const begin = figures.begin + at * figures.step;
      return (begin + Math.min(begin + figures.step, figures.last)) / 2;
    });

  let chosen = -1;
  function quantileLines() {
    return chosen < 0 ? figures.quantiles.all : figures.quantiles.by_function[chosen];
  }

  // A line shows its windows; only a window between two empty ones needs a point.
  const lonely = {
    filter: (chart, series) => {
      const values = chart.data[series];
      const empty = (at) => values[at] === null || values[at] === undefined;
      return Array.from(values.keys()).filter((at) => !empty(at) && empty(at - 1) && empty(at + 1));
    },
    show: true,
    size: 6,
  };

  function buildQuantiles() {
    const lines = quantileLines();
    const all = lines.flat().filter((value) => value);
    const [least, most] = [Math.min(...all, 1e12), Math.max(...all, 1)];
    const more = {
      y: {
        scale: { distr: 3, range: () => (least < most * 10 ? [least / 1.4, most * 2.2] : [1e6, 1e7]) },
        axis: latencyAxis,
      },
      series: [
        { label: "time", value: (_, value) => (value === null ? "" : clock(value)) },
        ...QUANTILES.map((label, number) => ({
          label,
          stroke: colors["q" + number],
          width: number === 0 || number === 3 ? 2 : 1.5,
          points: lonely,
          value: (_, value) => duration(value),
        })),
      ],
    };
    // A latency of nothing has no logarithm.
    const drawn = lines.map((line) => line.map((value) => (value === null ? null : Math.max(value, 1))));
    show("quantiles", options("quantiles", 300, more), [middles(lines[0].length), ...drawn]);
  }

  function chooseFunction() {
    if (figures.functions.length < 2) return;
    const select = make("select");
    select.setAttribute("aria-label", "Function");
    ["all functions", ...figures.functions].forEach((name, number) => {
      const option = make("option", "", name);
      option.value = number - 1;
      select.append(option);
    });
    select.addEventListener("change", () => {
      chosen = Number(select.value);
      const { min, max } = charts.quantiles.scales.x;
      buildQuantiles();
      charts.quantiles.setScale("x", { min, max });
    });
    one("quantiles-choice").append(select);
  }

  const shown = (rates) => !hidden.types.has(TYPES.indexOf(rates.type)) && !hidden.functions.has(rates.f);

  function buildRate() {
    const count = figures.quantiles.all[0].length;
    // The last window ends with the history, maybe early.
    const lengths = Array.from({ length: count }, (_, at) =>
      Math.min(figures.step, figures.last - figures.begin - at * figures.step));
    const perSecond = (number, at) => (lengths[at] < figures.step / 20 ? null : number / lengths[at]);
    const more = {
      y: {
        scale: { range: (_, min, max) => [0, Math.max(max * 1.12, 1e-9)] },
        axis: { values: (_, splits) => splits.map(rate) },
      },
      series: [
        { label: "time", value: (_, value) => (value === null ? "" : clock(value)) },
        ...figures.rates.map((rates) => ({
          label: `${figures.functions[rates.f]} ${rates.type}`,
          stroke: colors[rates.type],
          dash: DASHES[rates.f],
          width: 1.6,
          points: lonely,
          show: shown(rates),
          value: (_, value) => rate(value),
        })),
      ],
    };
    show("rate", options("rate", 300, more), [middles(count), ...figures.rates.map((rates) => rates.counts.map(perSecond))]);
  }

  // ---- the page

  function show(id, settings, data) {
    charts[id]?.destroy();
    charts[id] = new uPlot(settings, data, one(id));
    charts[id].setScale("x", { min: figures.begin, max: figures.last });
  }

  function build() {
    readColors();
    buildFaults();
    buildLatency();
    buildQuantiles();
    buildRate();
  }

  // A swatch or a shape; the only markup that is written as markup, and it is constant.
  function chip(set, number, name, shape, color) {
    const button = make("button");
    button.type = "button";
    button.setAttribute("aria-pressed", "true");
    button.innerHTML = `<svg viewBox="-1.4 -1.4 2.8 2.8" aria-hidden="true"><path d="${SHAPES[shape]}"/></svg>`;
    button.querySelector("path").style.fill = color;
    button.append(make("span", "", name));
    button.addEventListener("click", () => {
      const hide = !set.has(number);
      if (hide) set.add(number);
      else set.delete(number);
      button.setAttribute("aria-pressed", String(!hide));
      charts.latency.redraw();
      figures.rates.forEach((rates, at) => charts.rate.setSeries(at + 1, { show: shown(rates) }));
    });
    one("chips").append(button);
  }

  function buildChips() {
    TYPES.forEach((type, number) => chip(hidden.types, number, type, 2, `var(--${type})`));
    one("chips").append(make("span", "gap"));
    figures.functions.forEach((name, number) => chip(hidden.functions, number, name, number, "var(--ink)"));
    one("chips").append(make("span", "gap"));
    for (const name of new Set(figures.faults.map(family))) {
      const key = make("span", "key");
      const swatch = make("span", "swatch");
      swatch.style.background = `var(--${name})`;
      key.append(swatch, make("span", "", name === "other" ? "other fault" : name));
      one("chips").append(key);
    }
    if (figures.findings.length) {
      const key = make("span", "key");
      const swatch = make("span", "swatch found");
      key.append(swatch, make("span", "", "✗ finding: its time, a line where it came to light"));
      one("chips").append(key);
    }
  }

  buildChips();
  chooseFunction();
  build();
  linkFindings();
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", build);
  let wide = width();
  new ResizeObserver(() => {
    if (width() === wide) return;
    wide = width();
    for (const chart of Object.values(charts)) chart.setSize({ width: wide, height: chart.height });
  }).observe(one("charts"));
})();
