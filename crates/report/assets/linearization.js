// Shows any stretch of a picture of an order that works, from the figures beside it. The first stretch is in the page already.
"use strict";
(() => {
  const [NAMES, STATES_TOP, STATES_HEIGHT, ROWS_TOP, TIMES_HEIGHT] = [92, 20, 20, 48, 20];
  const [LETTER, CAPTION_LETTER, FADE, DRAWN_WIDTH, STRIP_HEIGHT] = [6.4, 6.2, 24, 1080, 34];
  const [ESSENTIAL, UNPLACED] = [1, 2];

  const clamp = (value, least, most) => Math.max(least, Math.min(most, value));
  const cut = (text, room) => {
    const letters = Array.from(text);
    return letters.length <= room ? text : letters.slice(0, Math.max(0, room - 1)).join("") + "…";
  };

  // The beginning and more of the end, at which collections grow.
  const bothEnds = (text, room) => {
    const letters = Array.from(text);
    if (letters.length <= room) return text;
    const first = Math.floor(room / 3);
    return letters.slice(0, first).join("") + "…" + letters.slice(letters.length - Math.max(0, room - first - 1)).join("");
  };

  function view(figure) {
    const data = JSON.parse(figure.querySelector("script").textContent);
    const svg = figure.querySelector("svg");
    const make = (name, attributes, ...children) => {
      const element = document.createElementNS(svg.namespaceURI, name);
      for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
      element.append(...children);
      return element;
    };
    const strip = make("svg", { class: "linearization-strip", "aria-hidden": "true", preserveAspectRatio: "none" });
    const pointOf = new Map(data.points.map(([bar, x]) => [bar, x]));
    const scale = (data.window[1] - data.window[0]) / (DRAWN_WIDTH - NAMES);
    const isWhole = data.window[1] - data.window[0] >= data.width - 1;
    let [begin, end] = data.window;
    let width = DRAWN_WIDTH;

    // The rows with something to show, as `rows_within` chooses them for the first stretch.
    function rowsWithin() {
      const within = (x) => begin <= x && x <= end;
      const rows = new Set();
      data.bars.forEach(([row, from, to, type, marks], number) => {
        const isUnderWay = from <= end && to >= begin;
        if (isUnderWay && (type !== "info" || marks > 0 || within(from) || within(pointOf.get(number) ?? NaN))) rows.add(row);
      });
      return Array.from(rows).sort((a, b) => a - b);
    }

    function draw() {
      const rows = rowsWithin();
      const rowHeight = rows.length > 14 ? 20 : 25;
      const top = new Map(rows.map((row, place) => [row, ROWS_TOP + place * rowHeight]));
      const bottom = ROWS_TOP + rows.length * rowHeight;
      const x = (at) => NAMES + ((at - begin) / (end - begin)) * (width - NAMES);
      const within = (at) => begin <= at && at <= end;
      const out = document.createDocumentFragment();
      for (const row of rows) {
        const y = top.get(row) + rowHeight;
        out.append(make("text", { x: 0, y: y - 8, class: "process" }, "process " + data.rows[row]));
        out.append(make("line", { x1: 0, x2: width, y1: y, y2: y }));
      }
      let free = 0;
      for (const [at, time] of data.times) {
        if (!within(at) || x(at) < free || x(at) + 60 > width) continue;
        free = x(at) + 110;
        out.append(make("line", { x1: x(at), x2: x(at), y1: bottom, y2: bottom + 4, class: "time" }));
        out.append(make("text", { x: x(at), y: bottom + 15, class: "time" }, time));
      }
      // Labels cover ticks, not the other way round.
      const labels = [];
      for (const bar of data.bars) {
        if (top.has(bar[0]) && bar[1] <= end && bar[2] >= begin) out.append(drawBar(bar, top.get(bar[0]), rowHeight, x, labels));
      }
      drawOrder(out, top, rowHeight, x, within);
      out.append(...labels);
      const first = data.points.length > 0 ? data.points[0][1] : data.end;
      drawState(out, x, 0, first, data.before, "before: " + data.before);
      data.points.forEach(([bar, at, state], number) => {
        const next = number + 1 < data.points.length ? data.points[number + 1][1] : data.end;
        drawState(out, x, at, Math.max(next, at), state, `after ${data.bars[bar][5]}: ${state}`);
      });
      if (within(data.end)) drawContradiction(out, x(data.end), bottom);
      svg.setAttribute("viewBox", `0 0 ${width} ${bottom + TIMES_HEIGHT}`);
      svg.replaceChildren(out);
      drawStrip();
    }

    function drawBar([, from, to, type, marks, label, times], y, rowHeight, x, labels) {
      const left = Math.max(x(from), NAMES - 4);
      const isOpen = type === "info";
      const right = isOpen ? clamp(x(data.end) + 8, left + 8, Math.max(left + 8, width - FADE)) : Math.min(x(to), width + 4);
      const wide = Math.max(right - left, 3);
      const height = rowHeight - 6;
      const room = Math.floor(Math.max(0, wide - 8) / LETTER);
      const names = ["bar", type];
      if (marks & UNPLACED) names.push("unplaced");
      if (marks & ESSENTIAL) names.push("essential");
      const group = make("g", { class: names.join(" ") }, make("title", {}, `${times}, ${type}: ${label}`));
      group.append(make("rect", { x: left, y: y + 3, width: wide, height, rx: 3 }));
      for (let slice = 0; isOpen && slice < 3; slice += 1) {
        const place = { x: right + (slice * FADE) / 3, y: y + 3, width: FADE / 3, height };
        group.append(make("rect", { class: "fade" + slice, ...place }));
      }
      if (room >= 3) labels.push(make("text", { class: "label", x: left + 5, y: y + height - 2 }, cut(label, room)));
      return group;
    }

    function drawOrder(out, top, rowHeight, x, within) {
      let [line, ticks] = ["", ""];
      for (const [bar, at] of data.points) {
        const y = top.get(data.bars[bar][0]);
        if (y === undefined || !within(at)) continue;
        line += `${line === "" ? "M" : "L"}${x(at)} ${y + rowHeight / 2}`;
        ticks += `M${x(at)} ${y + 1}v${rowHeight - 2}`;
      }
      if (line !== "") out.append(make("path", { class: "order", d: line }), make("path", { class: "tick", d: ticks }));
    }

    function drawState(out, x, from, to, state, title) {
      if (from > end || to < begin) return;
      const left = Math.max(x(from), NAMES - 4);
      const wide = Math.max(Math.min(x(to), width) - left, 2);
      const room = Math.floor(Math.max(0, wide - 5) / LETTER);
      const group = make("g", { class: "state" }, make("title", {}, title));
      group.append(make("rect", { x: left, y: STATES_TOP, width: wide, height: STATES_HEIGHT }));
      if (room >= Math.min(2, state.length)) {
        group.append(make("text", { x: left + 4, y: STATES_TOP + 14 }, bothEnds(state, room)));
      }
      out.append(group);
    }

    function drawContradiction(out, x, bottom) {
      const isLeft = data.reason.length * CAPTION_LETTER < x || x > width / 2;
      const room = Math.floor((isLeft ? x : width - x) / CAPTION_LETTER) - 2;
      out.append(make("path", { class: "break", d: `M${x} ${STATES_TOP - 4}V${bottom}` }));
      const place = { x, y: 13, class: "reason " + (isLeft ? "end" : "start") };
      out.append(make("text", place, make("title", {}, data.reason), "✗ " + cut(data.reason, room)));
    }

    // The whole history, with the stretch that is shown.
    function drawStrip() {
      const x = (at) => (at / data.width) * width;
      const rows = Math.max(1, data.rows.length);
      const path = (marked) => data.bars
        .filter((bar) => bar[4] > 0 === marked)
        .map(([row, from, to]) => `M${x(from).toFixed(1)} ${((row + 0.5) / rows) * (STRIP_HEIGHT - 4) + 2}H${x(to).toFixed(1)}`)
        .join("");
      const at = clamp(x(begin), 0, width);
      strip.setAttribute("viewBox", `0 0 ${width} ${STRIP_HEIGHT}`);
      strip.replaceChildren(
        make("path", { class: "all", d: path(false) }),
        make("path", { class: "marked", d: path(true) }),
        make("path", { class: "break", d: `M${x(data.end)} 0V${STRIP_HEIGHT}` }),
        make("rect", { x: at, y: 0.5, width: Math.max(4, clamp(x(end), 0, width) - at), height: STRIP_HEIGHT - 1 }),
      );
    }

    // Shows a stretch, moved so that it is within the picture.
    function show(from, to) {
      const long = clamp(to - from, 60, Math.max(60, data.width));
      begin = clamp(from, 0, Math.max(0, data.width - long));
      end = begin + long;
      draw();
    }
    const pan = (share) => show(begin + share * (end - begin), end + share * (end - begin));
    const zoom = (factor) => {
      // The end stays where it is while it is in view.
      const fixed = begin <= data.end && data.end <= end ? data.end : (begin + end) / 2;
      show(fixed - (fixed - begin) * factor, fixed + (end - fixed) * factor);
    };
    const center = (at) => show(at - (end - begin) / 2, at + (end - begin) / 2);
    function showEnd() {
      const long = isWhole ? data.width : (width - NAMES) * scale;
      const to = isWhole ? data.width : Math.min(data.width, data.end + 0.08 * long);
      show(to - long, to);
    }

    const controls = document.createElement("div");
    controls.className = "linearization-controls";
    const button = (text, title, action) => {
      const one = document.createElement("button");
      one.type = "button";
      one.textContent = text;
      one.title = title;
      one.setAttribute("aria-label", title);
      one.addEventListener("click", action);
      controls.append(one);
    };
    button("←", "Earlier (left arrow)", () => pan(-0.4));
    button("→", "Later (right arrow)", () => pan(0.4));
    button("−", "Show more (minus)", () => zoom(1.6));
    button("+", "Show less (plus)", () => zoom(1 / 1.6));
    button("all", "Show all (Home)", () => show(0, data.width));
    button("contradiction", "Show the contradiction (End)", showEnd);

    const keys = {
      ArrowLeft: () => pan(-0.2), ArrowRight: () => pan(0.2), "-": () => zoom(1.6), "+": () => zoom(1 / 1.6),
      "=": () => zoom(1 / 1.6), Home: () => show(0, data.width), End: showEnd,
    };
    figure.tabIndex = 0;
    figure.setAttribute("aria-label", "Order of operations; arrow keys move, plus and minus zoom");
    figure.addEventListener("keydown", (event) => {
      if (!keys[event.key] || event.ctrlKey || event.metaKey || event.altKey) return;
      event.preventDefault();
      keys[event.key]();
    });

    // Drags: the picture moves with the pointer, the stretch of the strip follows it.
    let held = null;
    svg.addEventListener("pointerdown", (event) => {
      held = { at: event.clientX, begin, end };
      svg.setPointerCapture(event.pointerId);
    });
    svg.addEventListener("pointermove", (event) => {
      if (!held) return;
      const moved = ((held.at - event.clientX) / svg.clientWidth) * (held.end - held.begin);
      show(held.begin + moved, held.end + moved);
    });
    for (const name of ["pointerup", "pointercancel"]) svg.addEventListener(name, () => (held = null));
    const follow = (event) => {
      if (event.buttons === 0) return;
      const box = strip.getBoundingClientRect();
      center(((event.clientX - box.left) / box.width) * data.width);
    };
    strip.addEventListener("pointerdown", (event) => {
      strip.setPointerCapture(event.pointerId);
      follow(event);
    });
    strip.addEventListener("pointermove", follow);

    figure.classList.add("live");
    svg.parentElement.after(strip, controls);
    const fit = () => {
      const room = figure.clientWidth;
      if (room === 0 || room === width) return;
      width = Math.max(300, room);
      showEnd();
    };
    figure.closest("details")?.addEventListener("toggle", fit);
    addEventListener("resize", fit);
    fit();
    draw();
  }

  document.querySelectorAll(".linearization-view").forEach(view);
})();
