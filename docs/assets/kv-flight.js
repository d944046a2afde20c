/* Requests in flight over a trace, in the browser: how many run and wait at once, and when most do. The scheduler is
   vLLM's, as in kvreport/traffic/replay.py, with one memory pool: a block of the trace that several requests share is
   held once, and ended requests leave their blocks in the cache until others need the room. A test holds the peaks to
   Python's. Needs kv-kernel.js. */
(function (root) {
  "use strict";

  const STEPS_A_SLICE = 200;
  const MOST_SAMPLES = 600;
  const MOST_REPLICAS = 256;

  const known = (seconds) => (Number.isNaN(seconds) ? 0 : seconds);

  /* Seconds of one step: the roofline's bound over an efficiency. The weights are read once for all requests of a step.
     demand: of kvCapacity.demandOf. null where the rates of the accelerator are not known. */
  function clock(demand, efficiency) {
    const kernel = root.kvKernel;
    if (!Number.isFinite(kernel.decodeSeconds(demand, 1, 1))) return null;
    return (decodes, context, chunks) => {
      let memory = 0, compute = 0, link = 0;
      if (decodes) {
        memory = known(kernel.decodeBytes(demand, decodes, context) / demand.bytesRate);
        compute = known(kernel.decodeComputeSeconds(demand, decodes, context));
        link = known(kernel.linkSeconds(demand, decodes));
      }
      for (const [fresh, front] of chunks) {
        let attention = fresh * (demand.stateBytes / 2 / kernel.STATE_ELEMENT_BYTES) *
          kernel.STATE_OPERATIONS;
        for (const reach of demand.reaches) {
          attention += reach[2] *
            (kernel.entriesUpTo(reach, front + fresh) - kernel.entriesUpTo(reach, front));
        }
        const read = kernel.weightBytesRead(demand, fresh) + demand.stateBytes;
        memory = Math.max(memory, known(read / demand.bytesRate));
        compute += known(
          kernel.workSeconds(demand.body, fresh) + kernel.workSeconds(demand.head, 1) +
            attention / demand.attentionRate,
        );
        link += known(kernel.linkSeconds(demand, fresh));
      }
      return Math.max(memory, compute, link) / efficiency;
    };
  }

  /* The cache of one replica. bytesOf: tokens of a request to its bytes; each: bytes that a further token takes. */
  function memory(trace, room, bytesOf, each) {
    const holders = new Int32Array(trace.distinct), filled = new Uint8Array(trace.distinct);
    const blockBytes = each * trace.blockTokens;
    /** @type {Map<number, true>} */
    const idle = new Map(); // in order of use, the last block of a request before the first
    let used = 0;
    const evict = () => {
      for (const node of idle.keys()) {
        if (used + idle.size * blockBytes <= room) return;
        idle.delete(node);
        filled[node] = 0;
      }
    };
    return {
      fits: (bytes) => used + bytes <= room,
      left: () => room - used,
      grow(bytes) {
        used += bytes;
        evict();
      },
      /* What a request would take, and how many of its tokens are in the cache already. */
      find(path, prompt) {
        let hit = 0;
        while (hit < path.length && filled[path[hit]]) hit += 1;
        hit = Math.min(hit, Math.floor((prompt - 1) / (trace.blockTokens || 1)));
        const shared = path.reduce((sum, node) => sum + (holders[node] ? 1 : 0), 0);
        return { tokens: hit * trace.blockTokens, bytes: bytesOf(prompt) - shared * blockBytes };
      },
      enter(path, bytes) {
        for (const node of path) {
          if (!holders[node]) idle.delete(node);
          holders[node] += 1;
        }
        used += bytes;
        evict();
      },
      fill(path) {
        for (const node of path) filled[node] = 1;
      },
      leave(path, bytes) {
        let shared = 0;
        for (let n = path.length - 1; n >= 0; n -= 1) {
          const node = path[n];
          holders[node] -= 1;
          if (holders[node]) shared += 1;
          else if (filled[node]) idle.set(node, true);
        }
        used -= bytes - shared * blockBytes;
        evict();
      },
    };
  }

  /* Serve a trace: {running, waiting, open: [most at once, seconds] each, waits: seconds of each request until it runs,
     ascending, preemptions, refused, seconds, samples}. It goes step by step, so that a page can draw meanwhile.
     room: bytes of the pool; bytesOf, each: see memory; seconds: a clock; seqs, batched: limits of a step. */
  function* flight(trace, { room, bytesOf, each, seconds, seqs, batched }) {
    const cache = memory(trace, room, bytesOf, each);
    const waiting = [], prefilling = [], decoding = new Map(), generated = new Map();
    const peaks = { running: [0, 0], waiting: [0, 0], open: [0, 0] };
    const waits = [];
    const ends = new Map(); // requests by the step that they end at
    let next = 0, now = 0, step = 0, contexts = 0, order = 0, preemptions = 0, refused = 0, taken = 0;
    let samples = [], every = 1, head = 0;
    const queued = () => waiting.length - head;
    const note = (name, number) => {
      if (number > peaks[name][0]) peaks[name] = [number, now];
    };
    const noteAll = () => {
      const running = prefilling.length + decoding.size;
      note("running", running);
      note("waiting", queued());
      note("open", running + queued());
    };

    function preempt() {
      let last = prefilling[prefilling.length - 1] ?? null;
      for (const run of decoding.values()) if (!last || run.order > last.order) last = run;
      if (decoding.has(last.request)) settle(last);
      else prefilling.splice(prefilling.indexOf(last), 1);
      generated.set(last.request, trace.output[last.request] - last.left);
      cache.leave(last.path, last.bytes);
      preemptions += 1;
      if (head) waiting[head -= 1] = last.request;
      else waiting.unshift(last.request);
    }

    function settle(run) {
      const steps = step - run.since;
      decoding.delete(run.request);
      run.stored += steps;
      run.left -= steps;
      run.bytes += steps * each;
      contexts -= run.stored;
    }

    function admit(budget) {
      if (prefilling.length + decoding.size >= seqs) return null;
      const request = waiting[head], path = trace.paths[request] ?? [];
      const done = generated.get(request) ?? 0, prompt = trace.prompt[request] + done;
      const { tokens, bytes } = cache.find(path, prompt);
      const alone = !decoding.size && !prefilling.length;
      if (!cache.fits(bytes + (alone ? 0 : decoding.size * each))) return null;
      const run = {
        request,
        path,
        prompt,
        left: trace.output[request] - done,
        stored: tokens,
        bytes: bytesOf(prompt),
        order: order++,
        since: -1,
      };
      if (!generated.has(request)) waits.push(now - trace.time[request]);
      cache.enter(path, bytes);
      head += 1;
      prefilling.push(run);
      return chunk(run, budget);
    }

    function chunk(run, budget) {
      const tokens = Math.min(run.prompt - run.stored, budget);
      run.stored += tokens;
      return [tokens, run.stored - tokens];
    }

    /* The first step at which one ends, of those that still decode. */
    function firstEnd() {
      let least = Infinity;
      for (const run of decoding.values()) least = Math.min(least, run.since + run.left);
      return least;
    }

    function advance(chunks) {
      const batch = decoding.size;
      let mean = batch ? contexts / batch : 0, steps = 1;
      if (!chunks.length && batch) {
        steps = Math.min(firstEnd() - step, Math.floor(cache.left() / (batch * each || 1)));
        if (next < trace.time.length && !queued()) {
          const one = seconds(batch, mean + steps / 2, []);
          if (one > 0) steps = Math.min(steps, Math.ceil((trace.time[next] - now) / one));
        }
        steps = Math.max(steps, 1);
      }
      mean += (steps - 1) / 2;
      now += seconds(batch, mean, chunks) * steps;
      if (batch) {
        step += steps;
        contexts += batch * steps;
        cache.grow(batch * steps * each);
      }
      for (const run of ends.get(step) ?? []) {
        if (decoding.get(run.request) !== run || run.since + run.left !== step) continue;
        settle(run);
        cache.leave(run.path, run.bytes);
      }
      if (batch) ends.delete(step);
      for (const run of [...prefilling]) {
        if (run.stored < run.prompt) continue;
        prefilling.splice(prefilling.indexOf(run), 1);
        cache.fill(run.path);
        run.left -= 1;
        if (run.left <= 0) {
          cache.leave(run.path, run.bytes);
          continue;
        }
        run.since = step;
        contexts += run.stored;
        decoding.set(run.request, run);
        const end = step + run.left;
        if (!ends.has(end)) ends.set(end, []);
        ends.get(end).push(run);
      }
    }

    while (next < trace.time.length || queued() || prefilling.length || decoding.size) {
      while (next < trace.time.length && trace.time[next] <= now) {
        if (bytesOf(trace.prompt[next] + Math.max(trace.output[next] - 1, 0)) > room) refused += 1;
        else waiting.push(next);
        next += 1;
      }
      noteAll();
      if (!queued() && !prefilling.length && !decoding.size) {
        if (next < trace.time.length) now = Math.max(now, trace.time[next]);
        continue;
      }
      let lost = 0;
      while (decoding.size && !cache.fits(decoding.size * each)) {
        preempt();
        lost += 1;
      }
      let budget = batched - decoding.size;
      const chunks = [];
      for (const run of prefilling) {
        if (budget <= 0) break;
        const one = chunk(run, budget);
        budget -= one[0];
        chunks.push(one);
      }
      while (!lost && queued() && budget > 0) {
        const one = admit(budget);
        if (!one) break;
        budget -= one[0];
        chunks.push(one);
      }
      if (head > 1000) {
        waiting.splice(0, head);
        head = 0;
      }
      noteAll();
      advance(chunks);
      taken += 1;
      if (taken % every === 0) samples.push([now, prefilling.length + decoding.size, queued()]);
      if (samples.length > MOST_SAMPLES) {
        samples = samples.filter((_, n) => n % 2);
        every *= 2;
      }
      if (taken % STEPS_A_SLICE === 0) yield;
    }
    waits.sort((a, b) => a - b);
    return { ...peaks, waits, preemptions, refused, seconds: now, samples };
  }

  /* Some requests of a trace. */
  const select = (trace, rows) => ({
    ...trace,
    ...Object.fromEntries(
      ["time", "prompt", "output", "session", "paths"].map((name) => [name, rows.map((n) => trace[name][n])]),
    ),
  });

  /* The part of a trace that each replica serves: whole sessions where the trace has them, else in turn. */
  function split(trace, replicas) {
    const rows = Array.from({ length: replicas }, () => []);
    trace.session.forEach((session, n) => rows[(session < 0 ? n : session) % replicas].push(n));
    return rows.filter((some) => some.length).map((some) => select(trace, some));
  }

  /* The value at a share of ascending values, the nearest one of both sides: summarize() of kvreport.traffic.answers. */
  function ranked(values, share) {
    const place = share * (values.length - 1), low = Math.floor(place);
    return values[place - low === 0.5 ? low + low % 2 : Math.round(place)];
  }

  /* The fewest replicas with which 95% of the requests wait at most so many seconds, as kvreport.traffic.answers finds
     them; null if none up to the most. */
  function* replicasFor(trace, options, most) {
    function* waits(replicas) {
      let found = [];
      for (const part of split(trace, replicas)) found = found.concat((yield* flight(part, options)).waits);
      return found.length > 0 && ranked(found.sort((a, b) => a - b), 0.95) > most;
    }
    let high = 1;
    while (yield* waits(high)) {
      high *= 2;
      if (high > MOST_REPLICAS) return null;
    }
    let low = Math.floor(high / 2) + 1;
    while (low < high) {
      const middle = Math.floor((low + high) / 2);
      if (yield* waits(middle)) low = middle + 1;
      else high = middle;
    }
    return high;
  }

  root.kvFlight = { clock, flight, ranked, select, replicasFor };
})(typeof globalThis === "object" ? globalThis : this);
