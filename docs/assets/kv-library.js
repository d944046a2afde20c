/* The library in a worker: fetched and started on a reader's click, for the pages that run Python. */
(function () {
  "use strict";

  const mb = (bytes) => (bytes / 1e6).toFixed(1);

  /* The policy in force is that of the page that was loaded first: a page that runs Python needs its own, and the
     next page must not have it. Returns how to end that; null where the page is loaded again. */
  kvreport.ownPolicy = () => {
    if (kvreport.landed !== location.pathname) {
      location.reload();
      return null;
    }
    const leave = (event) => {
      const anchor = event.target instanceof Element && event.target.closest("a[href]");
      if (anchor && !anchor.target && new URL(anchor.href).pathname !== location.pathname) {
        anchor.target = "_self";
      }
    };
    addEventListener("click", leave, true);
    return () => removeEventListener("click", leave, true);
  };

  /* The library of a form: `say(text, share)` tells on its bar how far loading is, `start` loads it once, and again where
     that failed or the worker ended. What `start` promises asks the library: `call` with a message, `ask` with a question
     about the model that was read. */
  kvreport.library = (form, base) => {
    const bar = kvreport.$("[data-kv-progress]", form);
    /** @type {any} */
    const held = { worker: null, say, start };
    const lost = () => held.worker = null;

    function say(text, share) {
      bar.hidden = !text;
      kvreport.$("span", bar).textContent = text;
      const progress = kvreport.$("progress", bar);
      if (share === undefined) progress.removeAttribute("value");
      else progress.value = share;
    }

    function start() {
      held.worker ||= kvreport.loadLibrary({ base, manifest: form.dataset.manifest, say, lost });
      held.worker.catch(lost);
      return held.worker;
    }

    return held;
  };

  /* What went wrong, where the answer would stand. */
  kvreport.fault = (error) =>
    kvreport.make("p", { class: "kv-fault", role: "alert" }, String(error.message || error));

  kvreport.loadLibrary = async ({ base, manifest, say, lost }) => {
    const answer = await fetch(new URL(manifest, base));
    if (!answer.ok) throw new Error(`Python for the browser is not on this site (status ${answer.status})`);
    const { files, info } = await answer.json();
    const worker = new Worker(new URL("../kv-python.js", base), { type: "module" });
    const waiting = new Map();
    let number = 0;
    worker.onerror = (event) => {
      for (const { failed } of waiting.values()) {
        failed(new Error(event.message || "Python could not be started"));
      }
      waiting.clear();
      lost();
    };
    worker.onmessage = ({ data }) => {
      if (data.stage) {
        const share = data.all && data.done / data.all;
        say(data.all ? `${data.stage}: ${mb(data.done)} of ${mb(data.all)} MB` : `${data.stage} …`, share);
        return;
      }
      const asked = waiting.get(data.id);
      waiting.delete(data.id);
      if (data.error !== undefined) asked.failed(new Error(data.error));
      else asked.done(data.result);
    };
    const call = (message) =>
      new Promise((done, failed) => {
        waiting.set(++number, { done, failed });
        worker.postMessage({ id: number, ...message });
      });
    await call({ start: { base, files, info } });
    return { call, ask: (ask, options) => call({ question: JSON.stringify({ ask, options }) }) };
  };
})();
