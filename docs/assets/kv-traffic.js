/* Hit-rate curves of a trace, in the browser: the readers and the one pass of kvreport/traffic, again.
   tests/browser holds it equal to Python's, to the token. Sums stay below 2^53, so a double holds them. */
(function (root) {
  "use strict";

  const BLOCK_SIZES = [512, 16, 32, 64, 128, 256, 1024];
  const PROBE = 200;
  const NAMES = {
    time: ["timestamp", "arrivedat", "arrival", "arrivals", "arrivaltime", "time", "timestampms", "t"],
    prompt: [
      "contexttokens",
      "numprefilltokens",
      "requesttokens",
      "prompttokens",
      "inputlength",
      "inputtokens",
      "prompt",
      "input",
      "promptlength",
      "in",
    ],
    output: [
      "generatedtokens",
      "numdecodetokens",
      "responsetokens",
      "completiontokens",
      "outputlength",
      "outputtokens",
      "output",
      "completion",
      "out",
    ],
  };
  const whole = (value) => Number.isInteger(value) && value >= 0;

  /** @returns {never} */
  function fail(text) {
    throw new Error(text);
  }

  /* --- reading ------------------------------------------------------------------------------------- */

  /* A trace in columns; blocks become nodes of a prefix tree: equal ids after equal ids are equal text. */
  function build(requests, blockTokens, name) {
    if (!requests.length) fail(`${name}: no request was found.`);
    const unordered = requests.some((one, n) => n && one.time < requests[n - 1].time);
    const nodes = [], tree = new Map();
    let unnumbered = 0;
    requests.forEach((one, n) => {
      if (!Number.isFinite(one.time) || one.time < 0) {
        fail(`Request ${n + 1}: time ${one.time} is no number of seconds from 0.`);
      }
      if (!whole(one.prompt) || !one.prompt) {
        fail(`Request ${n + 1}: prompt of ${one.prompt} tokens; allowed: whole numbers from 1.`);
      }
      if (!whole(one.output)) {
        fail(`Request ${n + 1}: output of ${one.output} tokens; allowed: whole numbers from 0.`);
      }
      const ids = one.blocks || [];
      const low = Math.floor(one.prompt / blockTokens), high = Math.ceil(one.prompt / blockTokens);
      if (ids.length && (ids.length < low || ids.length > high)) {
        fail(
          `Request ${
            n + 1
          }: ${ids.length} block ids for ${one.prompt} tokens; allowed: ${low} to ${high} blocks of ${blockTokens}.`,
        );
      }
      if (!ids.length) unnumbered += 1;
      let parent = -1;
      nodes.push(ids.map((id) => {
        const key = `${parent}/${typeof id === "string" ? `"${id}` : id}`;
        let node = tree.get(key);
        if (node === undefined) tree.set(key, node = tree.size);
        parent = node;
        return node;
      }));
    });
    const order = requests.map((_, n) => n);
    if (unordered) order.sort((a, b) => requests[a].time - requests[b].time || a - b);
    return {
      name,
      blockTokens: unnumbered === requests.length ? 0 : blockTokens,
      distinct: tree.size,
      reordered: order.filter((n, at) => n !== at).length,
      time: order.map((n) => requests[n].time),
      prompt: order.map((n) => requests[n].prompt),
      output: order.map((n) => requests[n].output),
      paths: order.map((n) => nodes[n]),
    };
  }

  function compact(lines, name) {
    const head = /^kvreport-trace 1 block=(\d{1,7}) time=ms\b/.exec(lines[0]);
    if (!head) fail(`${name}: the first line is no header of a trace.`);
    let time = 0, known = 0;
    const requests = lines.slice(1).filter((line) => line.trim()).map((line, n) => {
      const row = /^(\d{1,12}),(\d{1,10}),(\d{1,10})(?:,(\d{1,9}))?(?:;([\d+ -]*))?$/.exec(line.trim());
      if (!row) fail(`Line ${n + 2}: ${line.slice(0, 60)} is no request.`);
      time += Number(row[1]);
      const blocks = [];
      for (const word of (row[5] || "").split(" ").filter(Boolean)) {
        let low, high;
        if (word.startsWith("+")) {
          low = known;
          known += Number(word.slice(1));
          high = known - 1;
        } else [low, high = low] = word.split("-").map(Number);
        if (!(low >= 0 && low <= high && high < known)) {
          fail(`Line ${n + 2}: ${word} is no range of known blocks.`);
        }
        for (let node = low; node <= high; node++) blocks.push(node);
      }
      return { time: time / 1000, prompt: Number(row[2]), output: Number(row[3]), blocks };
    });
    return build(requests, Number(head[1]), name);
  }

  function idsOf(row, session) {
    if (Array.isArray(row.hash_ids)) return row.hash_ids;
    const ids = [];
    for (const [low, high] of row.hash_ranges || []) {
      for (let id = low; id <= high; id++) ids.push(`${session}/${id}`);
    }
    return ids;
  }

  function jsonLines(lines, name, given) {
    const rows = lines.filter((line) => line.trim()).map((line, n) => {
      try {
        return JSON.parse(line);
      } catch {
        return fail(`Line ${n + 1} is no JSON object.`);
      }
    });
    const probe = rows.slice(0, PROBE);
    const stating = probe.find((row) => row.block_size !== undefined || row.block !== undefined);
    let tokens = stating ? stating.block_size ?? stating.block : given;
    if (!tokens) {
      const pairs = probe.map((row) => [row.input_length, idsOf(row, "").length]).filter(([length, ids]) =>
        whole(length) && ids
      );
      const fits = BLOCK_SIZES.map((size) =>
        pairs.filter(([length, ids]) => Math.ceil(length / size) === ids).length
      );
      const best = fits.indexOf(Math.max(...fits));
      if (2 * fits[best] < Math.max(pairs.length, 1)) {
        fail(`${name}: no block size fits lengths and numbers of ids.`);
      }
      tokens = BLOCK_SIZES[best];
    }
    return build(
      rows.map((row) => ({
        time: (row.timestamp ?? row.t ?? 0) * (row.chat_id !== undefined || row.t !== undefined ? 1 : 1e-3),
        prompt: row.input_length ?? row.in,
        output: row.output_length ?? row.out ?? 0,
        blocks: idsOf(row, row.session),
      })),
      tokens,
      name,
    );
  }

  function sessions(documents, name) {
    const requests = [];
    const tokens = documents[0].block_size ?? 64;
    documents.forEach((one, n) => {
      const scope = one.hash_id_scope === "global" ? "" : `${one.id ?? n}/`;
      const add = (turns) =>
        turns.forEach((turn) => {
          if (Array.isArray(turn.requests)) add(turn.requests);
          else if (turn.in) {
            requests.push({
              time: turn.t ?? 0,
              prompt: turn.in,
              output: turn.out ?? 0,
              blocks: idsOf(turn, "").map((id) => `${scope}${id}`),
            });
          }
        });
      add(one.requests);
    });
    return build(requests, tokens, name);
  }

  function seconds(text, line) {
    if (text.trim() && Number.isFinite(Number(text))) return Number(text);
    const at = Date.parse(`${text.trim().replace(" ", "T").replace(/(\.\d{3})\d+/, "$1")}Z`);
    return Number.isNaN(at) ? fail(`Line ${line}: ${text} is no time.`) : at / 1000;
  }

  function table(lines, name) {
    const rows = lines.map((line, n) => [n + 1, line.split(",")]).filter(([, cells]) =>
      cells.some((cell) => cell.trim())
    );
    const plain = rows[0][1].map((cell) => cell.toLowerCase().replace(/[^a-z0-9]/g, ""));
    /** @type {any} */
    let at;
    if (rows[0][1].every((cell) => /^[\d.]*$/.test(cell.replace(/[\s,+-]/g, "")))) {
      at =
        [{ prompt: 0 }, { prompt: 0, output: 1 }, { time: 0, prompt: 1, output: 2 }][rows[0][1].length - 1] ||
        fail(`Line 1: ${rows[0][1].length} columns without a header; allowed: 1 to 3.`);
    } else {
      at = Object.fromEntries(
        Object.entries(NAMES).map(([field, names]) => [
          field,
          names.map((known) => plain.indexOf(known)).find((index) => index >= 0),
        ]),
      );
      if (at.prompt === undefined) {
        fail(
          `${name}: no column of prompt lengths (ContextTokens, num_prefill_tokens, prompt_tokens or input_length).`,
        );
      }
      rows.shift();
    }
    const scale = at.time !== undefined && plain[at.time] === "timestampms" ? 1e-3 : 1;
    let start = null;
    return build(
      rows.map(([line, cells]) => {
        let time = 0;
        if (at.time !== undefined) {
          time = seconds(cells[at.time] ?? "", line) * scale;
          start ??= time;
          time -= start;
          if (time < 0) fail(`Line ${line}: its time lies before the first row's; sort the rows by time.`);
        }
        return {
          time,
          prompt: Number(cells[at.prompt] || NaN),
          output: at.output === undefined ? 0 : Number(cells[at.output] || NaN),
        };
      }),
      1,
      name,
    );
  }

  function usage(lines, name) {
    const found = [];
    for (const line of lines) {
      const prompt = /["']?(?:prompt_tokens|input_tokens)["']?\s*[:=]\s*(-?\d+)/.exec(line);
      const output = /["']?(?:completion_tokens|output_tokens)["']?\s*[:=]\s*(-?\d+)/.exec(line);
      if (prompt && output) {
        found.push({ time: found.length, prompt: Number(prompt[1]), output: Number(output[1]) });
      }
    }
    if (!found.length) fail(`${name}: this is no trace: no lengths were found.`);
    return build(found, 1, name);
  }

  /* text: a whole file. Throws an Error with one sentence if it is no trace. */
  function readTrace(text, name, blockTokens) {
    const lines = text.replace(/^\ufeff/, "").split("\n");
    const head = lines.find((line) => line.trim());
    if (head === undefined) fail(`${name}: the file is empty.`);
    if (head.startsWith("kvreport-trace ")) return compact(lines, name);
    let first = null;
    try {
      first = JSON.parse(head);
    } catch { /* a table, a log, or a document of several lines */ }
    if (first === null && head.trimStart().startsWith("{") && !head.includes("prompt_tokens")) {
      try {
        first = JSON.parse(text);
      } catch {
        fail(`${name}: this is no valid JSON.`);
      }
      if (Array.isArray(first.requests)) return sessions([first], name);
    }
    if (first && Array.isArray(first.requests)) {
      return sessions(lines.filter((line) => line.trim()).map((line) => JSON.parse(line)), name);
    }
    if (first && (first.hash_ids || first.hash_ranges || first.input_length !== undefined)) {
      return jsonLines(lines, name, blockTokens);
    }
    if (
      lines.slice(0, PROBE).some((line) =>
        line.includes("prompt_tokens") && /completion_tokens|output_tokens/.test(line)
      ) && !/^[\w "]+(,[\w "]+)+\r?$/.test(head)
    ) return usage(lines, name);
    if (first && typeof first === "object") fail(`${name}: no lengths were found.`);
    return table(lines, name);
  }

  /* --- reuse distances --------------------------------------------------------------------------------- */

  /* Counts at positions, with sums of all behind a position in logarithmic time. */
  function counter(size) {
    const counts = new Float64Array(size), tree = new Float64Array(size + 1);
    let total = 0;
    return {
      at: (position) => counts[position],
      add(position, amount) {
        counts[position] += amount;
        total += amount;
        for (let n = position + 1; n <= size; n += n & -n) tree[n] += amount;
      },
      after(position) {
        let below = 0;
        for (let n = position + 1; n; n -= n & -n) below += tree[n];
        return total - below;
      },
    };
  }

  /* The runs of a trace: stretches of blocks that one earlier request used last, with what lies in front of
     them in the order of use. unit: tokens of an engine's full block, or null for the trace's blocks. */
  function reuse(trace, unit) {
    if (!trace.blockTokens) return null;
    const last = new Int32Array(trace.distinct).fill(-1), owned = counter(trace.prompt.length);
    const runs = [], starts = [0], lengths = [];
    let distinct = 0;
    trace.paths.forEach((path, request) => {
      const prompt = trace.prompt[request];
      const units = (
        blocks,
      ) => (unit ? Math.floor(Math.min(blocks * trace.blockTokens, prompt) / unit) : blocks);
      const cuts = [];
      let owner = -2;
      path.forEach((node, index) => {
        if (last[node] !== owner) {
          owner = last[node];
          cuts.push([owner, units(index)]);
        }
        last[node] = request;
      });
      const end = units(path.length);
      cuts.forEach(([previous, begin], n) => {
        const length = (n + 1 < cuts.length ? cuts[n + 1][1] : end) - begin;
        if (!length) return;
        let distance = -1;
        if (previous < 0) distinct += length;
        else {
          distance = owned.after(previous) + begin;
          owned.add(previous, -Math.min(length, owned.at(previous)));
        }
        runs.push([request, previous, begin, length, distance]);
      });
      owned.add(request, end);
      lengths.push(end);
      starts.push(runs.length);
    });
    return { trace, unit: unit || trace.blockTokens, runs, starts, units: lengths, distinct };
  }

  function lruUnits(reused, capacity) {
    const found = new Float64Array(reused.units.length);
    for (const [request, , begin, length, distance] of reused.runs) {
      if (distance >= 0 && distance < capacity && found[request] >= begin) {
        found[request] += Math.min(length, capacity - distance);
      }
    }
    return found;
  }

  /* Belady's MIN with bypass: the block whose next use is farthest away goes, or is not stored. */
  function bestUnits(reused, capacity) {
    const total = reused.units.length, never = total + 1;
    const uses = reused.units.map(() => []);
    for (const [request, previous, begin, length] of reused.runs) {
      if (previous >= 0) uses[previous].push([begin, begin + length, request]);
    }
    uses.forEach((path, request) => {
      const end = path.length ? path[path.length - 1][1] : 0;
      if (end < reused.units[request]) path.push([end, reused.units[request], never]);
    });
    const resident = new Map(), farthest = heap();
    const key = (use, owner) => use * (total + 2) + owner;
    const found = new Float64Array(total);
    let free = capacity;
    for (let request = 0; request < total; request++) {
      let hit = 0;
      for (let n = reused.starts[request]; n < reused.starts[request + 1]; n++) {
        const previous = reused.runs[n][1];
        if (previous < 0) continue;
        hit += resident.get(key(request, previous)) || 0;
        resident.delete(key(request, previous));
      }
      found[request] = hit;
      for (const [begin, stop, use] of uses[request]) {
        const kept = Math.min(Math.max(hit - begin, 0), stop - begin), wanted = stop - begin - kept;
        let taken = Math.min(wanted, free);
        free -= taken;
        while (taken < wanted && farthest.size() && farthest.top()[0] > use) {
          const [far, , owner] = farthest.top();
          const have = resident.get(key(far, owner)) || 0;
          if (have > wanted - taken) {
            resident.set(key(far, owner), have - (wanted - taken));
            taken = wanted;
          } else {
            resident.delete(key(far, owner));
            farthest.pop();
            taken += have;
          }
        }
        if (kept + taken) {
          resident.set(key(use, request), kept + taken);
          farthest.push([use, begin, request]);
        }
        if (taken < wanted) break;
      }
    }
    return found;
  }

  /* Largest first: by next use, then depth. */
  function heap() {
    const items = [];
    const before = (a, b) =>
      a[0] > b[0] || (a[0] === b[0] && (a[1] > b[1] || (a[1] === b[1] && a[2] < b[2])));
    return {
      size: () => items.length,
      top: () => items[0],
      push(item) {
        let n = items.push(item) - 1;
        while (n && before(items[n], items[(n - 1) >> 1])) {
          const up = (n - 1) >> 1;
          [items[n], items[up]] = [items[up], items[n]];
          n = up;
        }
      },
      pop() {
        const end = items.pop();
        if (!items.length) return;
        items[0] = end;
        for (let n = 0;;) {
          let best = n;
          for (const child of [2 * n + 1, 2 * n + 2]) {
            if (child < items.length && before(items[child], items[best])) best = child;
          }
          if (best === n) return;
          [items[n], items[best]] = [items[best], items[n]];
          n = best;
        }
      },
    };
  }

  /* Hits of one size of cache. policy: "lru" or "best"; computeLast: at least one token is computed. */
  function hitCounts(reused, capacity, { policy = "lru", warmup = 0, computeLast = false } = {}) {
    const size = capacity === null ? reused.distinct : capacity;
    const found = policy === "best" ? bestUnits(reused, size) : lruUnits(reused, size);
    const first = Math.trunc(found.length * warmup);
    let promptTokens = 0, hitTokens = 0, blocks = 0, hitBlocks = 0;
    for (let request = first; request < found.length; request++) {
      const prompt = reused.trace.prompt[request];
      let hit = found[request];
      if (computeLast && hit * reused.unit >= prompt) hit = Math.floor((prompt - 1) / reused.unit);
      promptTokens += prompt;
      hitTokens += Math.min(hit * reused.unit, prompt);
      blocks += reused.units[request];
      hitBlocks += hit;
    }
    return {
      capacity,
      promptTokens,
      hitTokens,
      blocks,
      hitBlocks,
      rate: hitTokens / Math.max(promptTokens, 1),
    };
  }

  /* The fewest units that reach a hit rate; null if none do. */
  function unitsFor(reused, wanted, options) {
    if (hitCounts(reused, null, options).rate < wanted) return null;
    let low = 0, high = reused.distinct;
    while (low < high) {
      const middle = Math.floor((low + high) / 2);
      if (hitCounts(reused, middle, options).rate >= wanted) high = middle;
      else low = middle + 1;
    }
    return low;
  }

  /* The text of a gzip stream; an archive may hold a thousand times its own size, so what comes out is counted. */
  async function unpacked(stream, most) {
    const reader = stream.pipeThrough(new DecompressionStream("gzip")).getReader(), parts = [];
    let size = 0;
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return new Blob(parts).text();
      size += value.length;
      if (size > most) {
        await reader.cancel();
        fail(`The archive holds over ${most / 1e6} MB: kvreport replay reads files of any size.`);
      }
      parts.push(value);
    }
  }

  const api = { readTrace, unpacked, reuse, hitCounts, unitsFor };
  root.kvTraffic = api;
})(typeof globalThis === "object" ? globalThis : this);
