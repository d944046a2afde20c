/* The boundary chart: concurrent requests by context, one line for each configuration, labeled at its end.
   Drawn as kvreport/site/kit/boundary_plot.py draws it when the site is built; here at the width that there is,
   again whenever the data changes, and with the figures of the nearest point under a pointer.
   Needs kv-kernel.js. */
(function () {
  "use strict";

  const kernel = kvKernel;
  const { $, $$, make, count, tokens, draw: svg } = kvreport;

  const text = (x, y, words, more = {}) => svg("text", { class: "kv-tick", x, y, ...more }, words);

  class Drawing {
    constructor(data, width) {
      this.data = data;
      this.narrow = width < kernel.PLOT_NARROW;
      this.width = this.narrow ? width : Math.min(width, kernel.PLOT_WIDTH);
      this.height = this.narrow ? kernel.PLOT_HEIGHT_NARROW : kernel.PLOT_HEIGHT;
      this.left = kernel.PLOT_LEFT;
      this.top = kernel.PLOT_TOP;
      this.right = this.width - (this.narrow ? kernel.PLOT_RIGHT_NARROW : kernel.PLOT_RIGHT);
      this.bottom = this.height - kernel.PLOT_BOTTOM;
      const points = data.lines.flatMap((line) => line.points);
      this.last = data.limit || Math.max(2, ...points.map(([context]) => context));
      this.first = Math.min(Math.max(this.last >> 1, 1), ...points.map(([context]) => context));
      const all = [...points, ...(data.ceiling || []), ...(data.high || [])];
      this.most = kernel.topOf(Math.max(1, ...all.map(([, requests]) => requests)));
    }

    x(context) {
      return this.left + kernel.logPlace(context, this.first, this.last, this.right - this.left);
    }

    y(requests) {
      return this.bottom - kernel.logPlace(requests, 1, this.most, this.bottom - this.top);
    }

    path(points) {
      const inside = points.filter(([context]) => context <= this.last);
      return inside.length ? `M${inside.map(([c, n]) => `${this.x(c)} ${this.y(n)}`).join("L")}` : "";
    }

    ticks(low, high, room) {
      const found = [], stride = kernel.tickStride(low, high, room);
      for (let n = kernel.firstPower(low); 2 ** n <= high; n += stride) found.push(2 ** n);
      return found;
    }

    /* Names at the ends of lines, apart from each other. */
    labels() {
      const ends = this.data.lines.map((line, n) => ({ line, number: n + 1 })).filter(({ line }) =>
        line.points.length
      ).map((one) => {
        const [context, requests] = one.line.points[one.line.points.length - 1];
        return { ...one, x: this.x(context), end: this.y(requests), y: 0 };
      }).sort((a, b) => a.end - b.end || b.x - a.x); // of lines that end as low, the one that reaches farther lies higher
      let before = -kernel.LABEL_GAP;
      for (const one of ends) before = one.y = kernel.labelPlace(one.end, before);
      const over = Math.max(before - this.bottom, 0);
      return ends.map((one) => ({ ...one, y: one.y - over }));
    }

    node() {
      const { data, left, right, top, bottom, width, height } = this;
      const box = svg("svg", { class: "kv-svg", viewBox: `0 0 ${width} ${height}`, width, height });
      const room = (length, least) => Math.floor(length / least);
      for (const n of this.ticks(1, this.most, room(bottom - top, kernel.PLOT_TICK_HEIGHT))) {
        const y = this.y(n);
        box.append(
          svg("line", { class: "kv-gridline", x1: left, x2: right, y1: y, y2: y }),
          text(left - 7, y + 4, count(n), { "text-anchor": "end" }),
        );
      }
      for (const n of this.ticks(this.first, this.last, room(right - left, kernel.PLOT_TICK_WIDTH))) {
        const x = this.x(n);
        box.append(
          svg("line", { class: "kv-gridline", y1: top, y2: bottom, x1: x, x2: x }),
          text(x, bottom + 17, tokens(n), { "text-anchor": "middle" }),
        );
      }
      const middle = { "text-anchor": "middle" };
      box.append(
        text((left + right) / 2, height - 6, "Context per request (tokens)", middle),
        svg("text", {
          class: "kv-tick",
          transform: `translate(13 ${(top + bottom) / 2}) rotate(-90)`,
          ...middle,
        }, "Concurrent requests"),
      );
      this.backdrop(box);
      for (let n = data.lines.length - 1; n >= 0; n--) { // the first one lies on top
        const path = this.path(data.lines[n].points);
        const chosen = n === 0 && !data.equal ? " kv-chosen-line" : "";
        if (path) box.append(svg("path", { class: `kv-line-${n + 1}${chosen}`, d: path }));
      }
      if (!this.narrow) this.names(box);
      this.point(box);
      return box;
    }

    backdrop(box) {
      const { data, top, bottom } = this;
      if (data.high?.length) {
        const low = Object.fromEntries(data.low);
        const upper = data.high.filter(([context]) => context <= this.last);
        const lower = [...upper].reverse().map(([context]) => [context, low[context] || 1]);
        const d = this.path([...upper, ...lower]);
        if (d) box.append(svg("path", { class: "kv-error", d: `${d}Z` }));
      }
      if (data.ceiling?.length) box.append(svg("path", { class: "kv-dots", d: this.path(data.ceiling) }));
      if (data.limit) {
        const x = this.x(data.limit);
        box.append(
          svg("line", { class: "kv-limit-line", x1: x, x2: x, y1: top, y2: bottom }),
          text(x, top - 8, `model limit ${tokens(data.limit)}`, { "text-anchor": "end" }),
        );
      }
    }

    names(box) {
      for (const { x, end, y, number, line } of this.labels()) {
        // Of a line that ends earlier it would cross the others: there the name's color tells.
        if (x > this.right - 20) {
          box.append(svg("line", { class: "kv-leader", x1: x, y1: end, x2: this.right + 6, y2: y }));
        }
        box.append(
          svg("text", { class: `kv-name kv-ink-${number}`, x: this.right + 9, y: y + 4 }, line.name),
        );
      }
    }

    point(box) {
      if (!this.data.chosen) return;
      const [context, requests] = this.data.chosen;
      const x = this.x(context), y = this.y(requests);
      const words = `${count(requests)} at ${tokens(context)}`;
      const [left, base] = this.free(x, y, kernel.CHOSEN_WIDTH * words.length);
      if (Math.abs(left - x) > kernel.CHOSEN_AWAY || Math.abs(base - y) > 2 * kernel.CHOSEN_HEIGHT) {
        const x2 = left > x ? left - 3 : left + 3;
        box.append(svg("line", { class: "kv-leader", x1: x, y1: y, x2, y2: base - 4 }));
      }
      box.append(
        svg("circle", { class: "kv-chosen", cx: x, cy: y, r: 5.5 }),
        svg("text", {
          class: "kv-chosen-text",
          x: left,
          y: base,
          "text-anchor": left > x ? "start" : "end",
        }, words),
      );
    }

    /* Where the figures of a point stand: next to it (right above, left below, left above, right below) if no line
       passes there, else at the nearest free place. */
    free(x, y, width) {
      const away = kernel.CHOSEN_AWAY, high = kernel.CHOSEN_HEIGHT;
      const pieces = [...this.data.lines.map((line) => line.points), this.data.ceiling || []].flatMap(
        (points) => {
          const inside = points.filter(([context]) => context <= this.last);
          return inside.slice(1).map(([context, requests], n) => [
            this.x(inside[n][0]),
            this.y(inside[n][1]),
            this.x(context),
            this.y(requests),
          ]);
        },
      );
      /** @param {number[]} where */
      const crossed = ([place, base]) => {
        const left = place > x ? place : place - width, up = base - high + 4;
        const outside = left < this.left || left + width > this.right || base > this.bottom || up < this.top;
        const over = ([a, m, b, n]) => kernel.overlaps(a, m, b, n, left, up, width, high);
        return (outside ? 100 : 0) + pieces.filter(over).length;
      };
      const near = [[1, -away], [-1, away + 11], [-1, -away], [1, away + 11]].map((
        [side, up],
      ) => [x + side * away, y + up]);
      const counts = near.map(crossed), fewest = Math.min(...counts);
      let best = near[counts.indexOf(fewest)], least = fewest ? Infinity : 0;
      const step = kernel.CHOSEN_STEP, far = kernel.CHOSEN_STEPS * step;
      for (let off = away; least && off < away + far; off += step) {
        for (let down = -far; down <= far; down += step) {
          for (const place of [[x + off, y + down + 4], [x - off, y + down + 4]]) {
            if (Math.hypot(off, down) >= least || crossed(place)) continue;
            const passed = pieces.filter(([a, m, b, n]) =>
              kernel.crosses(x, y, place[0], y + down, a, m, b, n)
            ).length;
            const cost = Math.hypot(off, down) + kernel.CHOSEN_CROSSING * passed;
            if (cost < least) [least, best] = [cost, place];
          }
        }
      }
      return best;
    }
  }

  /* What the lines say, as kvreport/site/kit/boundary_plot.py says it: the fewest and the most requests, and which have none. */
  function finding({ lines, chosen, at = chosen ? chosen[0] : kernel.USEFUL_TOKENS }) {
    const contexts = lines.flatMap((line) => line.points.map(([context]) => context));
    if (lines.length < 2 || !contexts.length) return "";
    const below = contexts.filter((context) => context <= at);
    const where = below.length ? Math.max(...below) : Math.min(...contexts);
    const ranked = lines.flatMap(({ name, points }) =>
      points.filter(([context]) => context === where).map(([, requests]) => ({ name, requests }))
    ).sort((a, b) => a.requests - b.requests);
    const few = ranked[0], many = ranked[ranked.length - 1];
    const none = lines.filter(({ points }) => !points.some(([context]) => context === where)).map((one) =>
      one.name
    );
    const who = ranked.length === 1 ? few.name : none.length ? "each of the others" : "each";
    const said = few.requests === many.requests
      ? `${kvreport.plural(few.requests, "request fits|requests fit")} with ${who}`
      : `from ${count(few.requests)} (${few.name}) to ${count(many.requests)} (${many.name}) requests fit`;
    const rest = none.length ? `, and none with ${none.join(" or ")}` : "";
    return `At ${tokens(where)} tokens per request, ${said}${rest}`;
  }

  /* Names of the lines under a narrow drawing. */
  function key(data) {
    return make(
      "ul",
      { class: "kv-legend kv-lines" },
      ...data.lines.map((line, n) =>
        make(
          "li",
          {},
          svg(
            "svg",
            { "aria-hidden": "true" },
            svg("path", { class: `kv-line-${n + 1}`, d: "M1 5h24" }),
          ),
          line.name,
        )
      ),
    );
  }

  /* Draw data into a .kv-plot. */
  function chart(plot, data) {
    const width = Math.floor(plot.clientWidth) || kernel.PLOT_WIDTH;
    const drawing = new Drawing(data, width);
    const tip = make("div", { class: "kv-tip", hidden: true });
    const kept = $("template", plot);
    plot.replaceChildren(
      drawing.node(),
      tip,
      ...(drawing.narrow && data.lines.length > 1 ? [key(data)] : []),
    );
    if (kept) plot.append(kept);
    plot.kvData = data;
    const said = $(".kv-finding", plot.parentElement);
    if (said) said.textContent = finding(data);
    plot.onpointermove = (event) => nearest(plot, drawing, tip, event);
    plot.onpointerleave = () => tip.setAttribute("hidden", "");
  }

  function nearest(plot, drawing, tip, event) {
    const box = $("svg", plot).getBoundingClientRect();
    const scale = drawing.width / box.width;
    const [px, py] = [(event.clientX - box.left) * scale, (event.clientY - box.top) * scale];
    let best = null;
    for (const line of drawing.data.lines) {
      for (const [context, requests] of line.points) {
        const x = drawing.x(context), y = drawing.y(requests);
        const distance = (x - px) ** 2 + (y - py) ** 2;
        if (!best || distance < best.distance) best = { distance, x, y, line, context, requests };
      }
    }
    if (!best || best.distance > 60 ** 2) {
      tip.setAttribute("hidden", "");
      return;
    }
    tip.removeAttribute("hidden");
    tip.textContent = `${best.line.name}: ${kvreport.plural(best.requests, "request|requests")} of ${
      tokens(best.context)
    } tokens`;
    const left = best.x / scale;
    tip.style.left = `${Math.min(left, Math.max(box.width - tip.offsetWidth - 4, 0))}px`;
    tip.style.top = `${Math.max(best.y / scale - 34, 0)}px`;
  }

  /* Draw every chart of a page again at its own width. */
  function plots(root) {
    const data = (plot) => plot.kvData || JSON.parse($("template", plot).content.textContent);
    const all = $$(".kv-plot", root).filter((plot) => plot.kvData || $("template", plot));
    const redraw = () =>
      all.forEach((plot) => plot.isConnected && plot.clientWidth && chart(plot, data(plot)));
    redraw();
    const resized = kvreport.debounce(redraw, 150);
    addEventListener("resize", resized);
    return { release: () => removeEventListener("resize", resized) };
  }

  Object.assign(kvreport, { chart, plots, finding });
})();
