/* The traffic page: reads a trace in the browser and draws its hit rates by size of the cache. The trace is
   in no address and in no request. Needs kv-capacity.js, kv-traffic.js and kv-flight.js. */
(function () {
  "use strict";

  const {
    $,
    $$,
    make,
    draw,
    count,
    gib,
    plural,
    onDevices,
    load,
    readState,
    writeState,
    ignoredNote,
    grid,
    fixed,
    picker,
    names,
  } = kvreport;
  const GIB = 2 ** 30;
  const POINTS = 20;
  const FEW = 20; /* rows of which the 95th percentile is none between two */

  /* The value at a share of the rows. */
  const ranked = (values, share) => kvFlight.ranked([...values].sort((a, b) => a - b), share);

  const largest = () => kvKernel.words.trace.bytes;

  function traffic(form) {
    const box = $("[data-kv-trafficked]");
    const base = new URL(form.dataset.kvTraffic, location.href);
    const fields = Object.fromEntries(
      $$("select, input:not([type=file])", form).map((field) => [field.name, field]),
    );
    const pickers = Object.fromEntries(
      $$("[data-kv-picker]", form).map((place) => [
        place.dataset.kvName,
        picker(place, base, () => {
          write();
          show();
        }),
      ]),
    );
    const value = (name) => (name in pickers ? pickers[name].value() : fields[name].value);
    const start = Object.fromEntries(
      [...Object.keys(pickers), ...Object.keys(fields)].map((name) => [name, value(name)]),
    );
    const startNames = Object.fromEntries(
      Object.entries(pickers).map(([name, one]) => [name, one.field.value]),
    );
    const chips = $$("[data-trace]", form);
    const known = {
      trace: chips.map((chip) => chip.dataset.trace),
      ...Object.fromEntries(
        Object.entries(fields).map(([name, field]) => [
          name,
          field.options ? Array.from(field.options, (one) => one.value) : null,
        ]),
      ),
    };
    const early = kvreport.changedEarly(form);
    let first = true;
    let trace = null, chosen = "", turn = 0, kept = null, ignored = [];

    /* --- reading ------------------------------------------------------------------------------- */

    async function textOf(blob) {
      const head = new Uint8Array(await blob.slice(0, 2).arrayBuffer());
      if (head[0] !== 0x1f || head[1] !== 0x8b) return blob.text();
      return kvTraffic.unpacked(blob.stream(), largest());
    }

    async function take(name, blob) {
      say(`Reading ${name} …`);
      await new Promise((done) => {
        setTimeout(done, 30);
      });
      try {
        if (blob.size > largest()) {
          throw new Error(`${name} has over ${count(largest() / 1e6)} MB, which is the limit for a trace.`);
        }
        trace = kvTraffic.readTrace(await textOf(blob), name);
        kept = null;
        await show();
      } catch (error) {
        trace = null;
        say(error.message, "refused");
      }
    }

    async function preset(key) {
      const chip = chips.find((one) => one.dataset.trace === key);
      chosen = key;
      const answer = await fetch(new URL(chip.dataset.file, location.href));
      if (!answer.ok) {
        say(`The trace could not be fetched (${answer.status}).`, "refused");
        return;
      }
      await take(chip.textContent, await answer.blob());
    }

    function say(text, state = "busy") {
      box.replaceChildren(make("p", { class: "kv-big" }, text), ignoredNote(ignored) || "");
      box.dataset.kvState = state;
    }

    /* --- the deployment ------------------------------------------------------------------------- */

    async function deployment() {
      const [site, model] = await Promise.all([
        kvreport.facts(base),
        load(new URL(`models/${value("model")}.json`, base)),
      ]);
      const gpu = site.gpus.find((one) => one.id === value("gpu"));
      const sizes = fields.tp.value === "fewest"
        ? site.sizes.map((_, n) => n)
        : [site.sizes.indexOf(Number(fields.tp.value))];
      const possible = sizes.map((size) => kvCapacity.configure(site, model, gpu, size, "released", model.kv))
        .filter(Boolean);
      const config = possible.find((one) => one.fitsWeights && one.free > 0) || null;
      if (!config) return { site, model, gpu, config };
      const growing = config.terms.filter(([rate, , cap]) => rate && !cap);
      const unit = growing.length ? Math.min(...growing.map(([, step]) => step)) : null;
      // Layers that keep every token; windows and states hold a fixed amount beside it.
      const bytes = unit && growing.reduce((sum, [rate, step]) => sum + (rate * unit) / step, 0);
      return {
        site,
        model,
        gpu,
        config,
        unit,
        bytes,
        plain: growing.length === config.terms.length && !config.constant,
      };
    }

    /* --- showing -------------------------------------------------------------------------------- */

    async function show() {
      if (!trace) return;
      const mine = ++turn;
      const at = await deployment();
      if (mine !== turn) return;
      const left = kvTraffic.leftOut(trace, at.model.limit);
      if (left.tooMany) {
        say(await another(at, left), "refused");
        return;
      }
      const children = [...summary()];
      if (!at.config) {
        children.unshift(make("p", { class: "kv-big" }, `${at.model.name} does not fit on ${at.gpu.short}.`));
      } else if (!trace.blockTokens) children.unshift(make("p", { class: "kv-big" }, fitting(at)), peak());
      else if (!at.unit) {
        children.unshift(
          make("p", { class: "kv-big" }, `${at.model.name} has no cache that grows with the prompt.`),
          peak(),
        );
      } else children.unshift(...rates(at));
      if (trace.arrivals !== "recorded") children.unshift(make("p", { class: "kv-note" }, untimed()));
      if (at.config) children.push(make("div", { class: "kv-flight" }));
      children.push(command(at));
      const note = ignoredNote(ignored);
      if (note) children.push(note);
      box.replaceChildren(...children);
      box.dataset.kvState = "answered";
      delete box.dataset.kvFlown;
      delete box.dataset.kvReplicas;
      if (at.config && trace.arrivals === "recorded") await inFlight(at, mine);
    }

    /* Requests in flight: their peak beside the first sentences, the course over time below the hit rates. */
    async function inFlight(at, mine) {
      let peaks, times;
      try {
        [peaks, times] = await Promise.all(
          ["peaks.json", `times/${value("model")}.json`].map((name) => load(new URL(name, base))),
        );
      } catch (error) {
        if (mine === turn) told(`The requests in flight could not be computed (${error.message}).`);
        return;
      }
      const { config, gpu, model } = at, size = at.site.sizes.indexOf(config.size);
      const demand = kvCapacity.demandOf(times, peaks.gpus[gpu.id], "released", model.kv, size, config.size);
      const seconds = kvFlight.clock(demand, kvKernel.DEFAULT_EFFICIENCY);
      if (mine !== turn) return;
      if (!seconds) {
        told(`The rates of ${gpu.short} are not known, so the requests in flight cannot be computed.`);
        return;
      }
      const growing = config.terms.filter(([rate, , cap]) => rate && !cap);
      const part = served(at),
        server = {
          room: config.free,
          bytesOf: (tokens) =>
            kvKernel.requestBytes(config.constant, config.terms, Math.min(tokens, model.limit)),
          each: growing.reduce((sum, [rate, step]) => sum + rate / step, 0),
          seconds,
          seqs: config.seqs,
          batched: config.tokens,
        };
      await kvreport.pause();
      const found = await kvreport.inSlices(kvFlight.flight(part, server), () => mine === turn);
      if (!found || mine !== turn) return;
      const { open, running, waiting } = found, unit = timeUnit(found.seconds);
      box.kvFlight = found;
      told(
        `Peak: ${plural(open[0], "request|requests")} in flight after ${lasting(open[1], unit)}${
          waiting[0]
            ? `. At most ${plural(running[0], "request runs|requests run")} at once, and ${
              plural(waiting[0], "waits|wait")
            } at the peak of the queue.`
            : ", and none waits."
        }`,
      );
      const rows = [
        ["In flight (running or waiting)", open],
        ["Running", running],
        ["Waiting", waiting],
      ].map(([name, [most, when]]) => [name, count(most), most ? unit.of(when) : "–"]);
      $(".kv-flight", box)?.replaceChildren(
        make("h2", {}, "Requests in flight"),
        make(
          "p",
          {},
          `One replica with vLLM’s scheduler, steps at ${
            Math.round(kvKernel.DEFAULT_EFFICIENCY * 100)
          }% of the roofline: the last request ends after ${lasting(found.seconds, unit)}, with ${
            plural(found.preemptions, "preemption|preemptions")
          }.`,
        ),
        ...waited(found.waits),
        course(found, unit),
        grid("Peak of requests", ["Requests", "Peak", `After (${unit.name})`], rows),
      );
      box.dataset.kvFlown = "done";
      await replicas(part, server, mine);
    }

    const longest = () => Number(fields.wait.value);

    /* How many replicas keep the wait that the form names. */
    async function replicas(part, server, mine) {
      const put = (...text) => $(".kv-replicas", box)?.replaceChildren(...text);
      const most = longest();
      if (!(most > 0)) {
        put("The target wait must be a number of seconds above 0.");
        return;
      }
      const number = await kvreport.inSlices(
        kvFlight.replicasFor(part, server, most),
        () => mine === turn,
      );
      if (mine !== turn) return;
      const wait = `95% of the requests wait at most ${plural(most, "second|seconds")}`;
      put(
        ...number
          ? ["With ", make("strong", {}, plural(number, "replica|replicas")), `, ${wait}.`]
          : [`On no number of replicas up to 256, ${wait}.`],
      );
      box.dataset.kvReplicas = String(number ?? "none");
    }

    /* How long requests wait on one replica, and the place for the replicas that keep a wait. */
    function waited(waits) {
      const [half, most, nearly] = [0.5, 0.95, 0.99].map((share) => kvFlight.ranked(waits, share));
      const unit = timeUnit(most);
      const said = waits.length
        ? `50% of the requests wait at most ${lasting(half, unit)} before they run, 95% at most ${
          lasting(most, unit)
        }, and 99% at most ${lasting(nearly, unit)}.`
        : "";
      return [
        make("p", {}, said),
        make("p", { class: "kv-replicas" }, "Finding the number of replicas for the target wait …"),
      ];
    }

    /* The unit in which a length of time is a readable number: its name, its seconds, and a time as a number of it. */
    function timeUnit(whole) {
      const units = [{ name: "minutes", seconds: 60 }, { name: "seconds", seconds: 1 }];
      const { name, seconds } = units.find((one) => whole >= 2 * one.seconds) ||
        { name: "milliseconds", seconds: 0.001 };
      return { name, seconds, of: (time) => (time / seconds).toFixed(1) };
    }
    const lasting = (time, unit) => `${unit.of(time)} ${unit.name}`;
    function told(text) {
      $(".kv-peak", box)?.replaceChildren(text);
    }

    /* A trace of which too much is left out is another trace: no number stands for it. */
    async function another(at, left) {
      const longest = trace.prompt.reduce((most, one) => Math.max(most, one), 0);
      const models = await load(new URL("traffic/models.json", base));
      const other = kvTraffic.longerModel(models, value("model"), longest);
      const found = `${at.model.name} leaves out ${outside(at, left)}. With more than ${
        percent(kvKernel.words.trace.left_out)
      } left out, the answer would be for a different trace.`;
      return other
        ? `${found} Choose a model for prompts of ${count(longest)} tokens, such as ${other.name} (${
          count(other.context)
        } tokens).`
        : `${found} No model here serves prompts of ${count(longest)} tokens.`;
    }

    const outside = (at, left) =>
      `${count(left.requests)} of ${plural(trace.prompt.length, "request|requests")} (${
        percent(left.share)
      }, with ${percent(left.tokens)} of the prompt tokens), whose prompts have ${
        count(at.model.limit)
      } tokens or more`;

    const without = (at) => {
      const left = kvTraffic.leftOut(trace, at.model.limit);
      return left.requests ? `, without ${outside(at, left)}` : "";
    };

    const peak = () => make("p", { class: "kv-peak" });

    const untimed = () =>
      trace.arrivals === "at_once"
        ? `No arrival times found: kvreport replay takes all ${
          plural(trace.prompt.length, "request|requests")
        } at once; --rate R spreads them, R a second.`
        : "No times between sessions found: all begin at once; kvreport replay --rate R begins R a second.";

    /* Prompts that fill the model's context are refused by engines, and left out here. */
    function reused(at) {
      if (!kept || kept.unit !== at.unit || kept.limit !== at.model.limit) {
        kept = { ...kvTraffic.reuse(served(at), at.unit), limit: at.model.limit };
      }
      return kept;
    }

    function served(at) {
      return kvFlight.select(
        trace,
        trace.prompt.map((_, n) => n).filter((n) => trace.prompt[n] < at.model.limit),
      );
    }

    function rates(at) {
      const runs = reused(at), options = { computeLast: true };
      const units = Math.floor(at.config.free / at.bytes);
      const here = kvTraffic.hitCounts(runs, units, options).rate;
      const best = kvTraffic.hitCounts(runs, units, { ...options, policy: "best" }).rate;
      const all = kvTraffic.hitCounts(runs, null, options).rate;
      const points = sizes(runs.distinct).map((size) => ({
        gib: (size * at.bytes) / GIB,
        lru: kvTraffic.hitCounts(runs, size, options).rate,
        best: kvTraffic.hitCounts(runs, size, { ...options, policy: "best" }).rate,
      }));
      const pool = (units * at.bytes) / GIB;
      box.kvFound = { units, here, best, all, points, pool };
      const said = [
        make(
          "p",
          { class: "kv-big" },
          `${percent(here)} of prompt tokens hit the cache of ${at.model.name} on ${
            onDevices(at.config.size, at.gpu.short)
          }${without(at)}.`,
        ),
        make(
          "p",
          {},
          `The KV pool is ${
            gib(at.config.free, 1)
          } GiB per GPU. The best possible eviction policy would reach ${
            percent(best)
          }, a cache without limit ${percent(all)}.`,
        ),
        peak(),
        chart(points, pool),
      ];
      const wanted = Number(fields.wanted.value) / 100;
      if (fields.wanted.value.trim()) said.splice(2, 0, make("p", {}, need(runs, at, wanted, options)));
      if (!at.plain) {
        said.push(
          make(
            "p",
            { class: "kv-note" },
            "This result includes only layers that keep every token. kvreport replay also includes sliding windows and recurrent states.",
          ),
        );
      }
      said.push(
        grid(
          "Hit rate by cache size",
          ["Cache per GPU (GiB)", "LRU", "Best possible"],
          points.map((one) => [gib(one.gib * GIB, 2), percent(one.lru), percent(one.best)]),
        ),
      );
      return said;
    }

    function need(runs, at, wanted, options) {
      if (!(wanted > 0 && wanted < 1)) return "The target hit rate must be a number between 0 and 100.";
      const units = kvTraffic.unitsFor(runs, wanted, options);
      if (units === null) return `No cache reaches a hit rate of ${percent(wanted)} on this trace.`;
      const replicas = Math.ceil((units * at.bytes) / at.config.free);
      return `A hit rate of ${percent(wanted)} takes ${
        gib(units * at.bytes, 1)
      } GiB of cache per GPU. This is the KV pool of ${
        plural(replicas, "replica|replicas")
      }, if requests with the same prefix always go to the same replica.`;
    }

    /* Sizes evenly on a logarithmic scale, up to all blocks. */
    function sizes(distinct) {
      const least = Math.max(distinct / 256, 1);
      return [
        ...new Set(
          Array.from(
            { length: POINTS },
            (_, n) => Math.floor(least * (distinct / least) ** (n / (POINTS - 1)) + 1e-6),
          ),
        ),
      ];
    }

    function fitting(at) {
      const held = trace.prompt.map((prompt, n) => [prompt, trace.output[n]])
        .filter(([prompt]) => prompt < at.model.limit)
        .map(([prompt, output]) =>
          kvKernel.requestBytes(
            at.config.constant,
            at.config.terms,
            Math.min(prompt + output, at.model.limit),
          )
        );
      const mean = held.reduce((sum, bytes) => sum + bytes, 0) / held.length;
      const large = ranked(held, 0.95);
      return `${at.model.name}: ${
        count(Math.floor(at.config.free / mean))
      } requests of mean size fit at once on ${onDevices(at.config.size, at.gpu.short)}, ${
        count(Math.floor(at.config.free / large))
      } of the 95th percentile${
        without(at)
      }. The trace does not state which prompts begin with the same text (as hash_ids do in Mooncake’s format), so prefix cache hits are not counted.`;
    }

    function summary() {
      const lasts = trace.time[trace.time.length - 1] - trace.time[0];
      const few = trace.prompt.length < FEW ? `, nearest of ${trace.prompt.length} rows` : "";
      const rows = [
        ["Requests", count(trace.prompt.length)],
        [
          "Duration",
          trace.arrivals === "at_once" ? "no arrival times found" : lasting(lasts, timeUnit(lasts)),
        ],
        [
          `Prompt tokens, median and 95th percentile${few}`,
          `${count(ranked(trace.prompt, 0.5))}, ${count(ranked(trace.prompt, 0.95))}`,
        ],
        [
          `Output tokens, median and 95th percentile${few}`,
          `${count(ranked(trace.output, 0.5))}, ${count(ranked(trace.output, 0.95))}`,
        ],
      ];
      if (trace.blockTokens) {
        rows.push(["Distinct prefix blocks", `${count(trace.distinct)} of ${trace.blockTokens} tokens`]);
      }
      if (trace.reordered) rows.push(["Requests sorted by time", count(trace.reordered)]);
      return [grid("The trace", ["Quantity", "Value"], rows)];
    }

    function command(at) {
      const name = chosen && trace.name === chips.find((one) => one.dataset.trace === chosen).textContent
        ? chosen
        : trace.name;
      const size = at.config ? ` --tp ${at.config.size}` : "";
      const rate = trace.arrivals === "recorded" ? ` --wait ${longest() || 1}` : " --rate R";
      return make(
        "p",
        { class: "kv-note" },
        "The full replay on the command line: ",
        make(
          "code",
          {},
          `kvreport replay ${name} ${
            at.model.id || at.model.slug.replace("--", "/")
          } --gpu ${at.gpu.id}${size}${rate}`,
        ),
      );
    }

    /* --- drawing -------------------------------------------------------------------------------- */

    const text = (words, [across, down], anchor = "middle") =>
      draw(
        "text",
        { x: across, y: down, "text-anchor": anchor, "font-size": 13, fill: "currentColor" },
        words,
      );

    /* A line of a chart through points, and one across it at a height. */
    const curve = (points, colour, dash) =>
      draw("polyline", {
        fill: "none",
        stroke: colour,
        "stroke-width": 2,
        "stroke-dasharray": dash,
        points: points.join(" "),
      });
    const rule = (from, to, at) =>
      draw("line", { x1: from, x2: to, y1: at, y2: at, stroke: "currentColor", "stroke-opacity": 0.15 });

    /* Where a chart draws: a unit is a pixel, so that letters have one size, whatever the width. most: the value at the top. */
    function plane(height, left, top, most) {
      const width = Math.min(860, Math.max(320, form.clientWidth));
      const right = width - 12, base = height - 44;
      const y = (value) => base - (value / most) * (base - top);
      return {
        left,
        right,
        top,
        base,
        y,
        tick: (value, words) => [rule(left, right, y(value)), text(words, [left - 6, y(value) + 4], "end")],
        title: (words) => text(words, [(left + right) / 2, height - 6]),
        figure(label, parts, caption) {
          const drawn = draw(
            "svg",
            { class: "kv-svg", viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label },
            ...parts,
          );
          drawn.style.maxWidth = `${width}px`;
          return make("figure", { class: "kv-figure" }, drawn, caption && make("figcaption", {}, caption));
        },
      };
    }

    function chart(points, pool) {
      const first = points[0], last = points[points.length - 1];
      const low = Math.log2(first.gib), high = Math.log2(Math.max(last.gib, first.gib * 2));
      const peak = Math.max(0.1, ...points.map((one) => one.best));
      const step = peak > 0.5 ? 0.2 : peak > 0.2 ? 0.1 : 0.05, most = step * Math.ceil(peak / step - 1e-9);
      const { left, right, top, base, y, tick, title, figure } = plane(320, 52, 20, most);
      const x = (value) => left + ((Math.log2(value) - low) / (high - low)) * (right - left);
      const line = (key, colour, dash) =>
        curve(points.map((one) => `${x(one.gib).toFixed(1)},${y(one[key]).toFixed(1)}`), colour, dash);
      const parts = [];
      for (let value = 0; value < most + step / 2; value += step) {
        parts.push(...tick(value, `${Math.round(value * 100)}%`));
      }
      for (let power = Math.ceil(low); power <= high; power += Math.max(1, Math.ceil((high - low) / 8))) {
        parts.push(text(power < 0 ? `1/${2 ** -power}` : count(2 ** power), [x(2 ** power), base + 18]));
      }
      parts.push(title("KV cache per GPU (GiB)"));
      if (pool >= first.gib && pool <= last.gib) {
        const at = { x1: x(pool), x2: x(pool), y1: top, y2: base };
        parts.push(
          draw("line", { ...at, stroke: "currentColor", "stroke-dasharray": "2 3" }),
          text("This KV pool", [x(pool), top - 6], x(pool) < left + 44 ? "start" : "middle"),
        );
      }
      parts.push(
        line("best", "var(--kv-l2)", "7 3"),
        line("lru", "var(--kv-l1)", "1 0"),
        // Hit rates rise to the right: below the right end there are no lines.
        text("Best possible: dashed", [right, base - 28], "end"),
        text("LRU: solid", [right, base - 9], "end"),
      );
      return figure(
        `Hit rate against cache size: from ${percent(first.lru)} at ${first.gib.toFixed(1)} GiB to ${
          percent(last.lru)
        } at ${last.gib.toFixed(1)} GiB`,
        parts,
      );
    }

    /* Requests over time: those that run, and those that wait besides. */
    function course({ samples, open, seconds }, unit) {
      const of = (time) => time / unit.seconds, end = of(seconds) || 1, most = Math.max(open[0], 1);
      const { left, right, base, y, tick, title, figure } = plane(240, 60, 24, most);
      const x = (value) => left + (value / end) * (right - left);
      const line = (number, colour, dash) =>
        curve(
          samples.map((one) => `${x(of(one[0])).toFixed(1)},${y(number(one)).toFixed(1)}`),
          colour,
          dash,
        );
      const parts = [...new Set([0, Math.round(most / 2), most])].flatMap((value) =>
        tick(value, count(value))
      );
      const power = 10 ** Math.floor(Math.log10(end / 4));
      const step = power * [1, 2, 5, 10].find((one) => one * power >= end / 5), digits = step < 1 ? 1 : 0;
      for (let n = 0; n * step <= end; n += 1) {
        parts.push(
          text(
            fixed(n * step, digits),
            [x(n * step), base + 18],
            x(n * step) > right - 20 ? "end" : "middle",
          ),
        );
      }
      const place = x(of(open[1])), late = place > (left + right) / 2;
      parts.push(
        title(`Time (${unit.name})`),
        line((one) => one[1] + one[2], "var(--kv-l2)", "7 3"),
        line((one) => one[1], "var(--kv-l1)", "1 0"),
        draw("circle", { cx: place, cy: y(open[0]), r: 4, fill: "var(--kv-l2)" }),
        text(`Peak ${count(open[0])}`, [place + (late ? -8 : 8), y(open[0]) - 8], late ? "end" : "start"),
      );
      return figure(
        `Requests over time: at most ${count(open[0])} in flight, after ${lasting(open[1], unit)}`,
        parts,
        "Solid: running. Dashed: running and waiting.",
      );
    }

    const percent = (share) => `${(share * 100).toFixed(1)}%`;

    /* --- the form --------------------------------------------------------------------------------- */

    function write() {
      ignored = [];
      const state = chosen ? { trace: chosen } : {};
      for (const name of Object.keys(start)) {
        if (value(name) !== start[name]) state[name] = value(name);
      }
      writeState(state);
    }

    /* The catalog's names, where an address may name some of them. */
    async function restore() {
      const listed = location.search ? await names(base).catch(() => null) : null;
      const items = { model: listed?.models || [], gpu: listed?.gpus || [] };
      for (const name of Object.keys(pickers)) known[name] = items[name].map((one) => one.id);
      const asked = readState(known), { state } = asked;
      ignored = asked.ignored;
      const touched = first ? early() : [];
      first = false;
      for (const name of Object.keys(fields)) {
        if (!touched.includes(name)) kvreport.put(fields[name], state[name]?.[0] || start[name]);
      }
      for (const name of Object.keys(pickers)) {
        const item = items[name].find((one) => one.id === state[name]?.[0]);
        pickers[name].set(item?.id || start[name], item?.name || startNames[name]);
      }
      const wanted = state.trace?.[0];
      if (wanted && wanted !== chosen) preset(wanted).catch((error) => say(error.message, "refused"));
      else if (trace) show();
      else {
        $(".kv-ignored", box)?.remove();
        box.append(ignoredNote(ignored) || "");
      }
    }

    const own = (file) => {
      chosen = "";
      write();
      take(file.name, file);
    };
    chips.forEach((chip) =>
      chip.addEventListener(
        "click",
        () => preset(chip.dataset.trace).then(write).catch((error) => say(error.message, "refused")),
      )
    );
    $("input[type=file]", form).addEventListener("change", (event) => {
      if (event.target.files[0]) own(event.target.files[0]);
    });
    for (const field of Object.values(fields)) {
      field.addEventListener("change", () => {
        write();
        show();
      });
    }
    form.addEventListener("submit", (event) => event.preventDefault());
    for (const target of [form, box]) {
      target.addEventListener("dragover", (event) => event.preventDefault());
      target.addEventListener("drop", (event) => {
        if (!event.dataTransfer.files[0]) return;
        event.preventDefault();
        own(event.dataTransfer.files[0]);
      });
    }
    restore();
    return { restore };
  }

  kvreport.traffic = traffic;
})();
