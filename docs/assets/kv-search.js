/* The search's worker. It fetches the theme's engine when the first message comes, not with every
   page, and puts what is called exactly as asked before what merely mentions it: "deepseek v3" is
   DeepSeek-V3 and then V3.1. The engine lies beside this file, under the same name with ".engine". */
(function () {
  "use strict";

  const SETUP = 0, QUERY = 2, RESULT = 3;
  const send = self.postMessage.bind(self);
  let asked = "", parts = /[\s\-]+/, loaded = false;

  const words = (text) => text.replace(/<[^>]*>/g, "").toLowerCase().split(parts).filter(Boolean);

  /* 0: a title or another name of the page is what was asked. 1: one of them holds every word of it
     as a whole word. 2: anything else. */
  function distance(pages, query) {
    const page = pages.find((one) => !one.location.includes("#")) || pages[0];
    const names = [page.title, ...(page.tags || [])].map(words);
    if (names.some((name) => name.join(" ") === query.join(" "))) return 0;
    return names.some((name) => query.every((word) => name.includes(word))) ? 1 : 2;
  }

  function ranked(items) {
    const query = words(asked);
    if (!query.length) return items;
    return items.map((pages, place) => [distance(pages, query), place, pages])
      .sort((a, b) => a[0] - b[0] || a[1] - b[1]).map(([, , pages]) => pages);
  }

  self.postMessage = (message) =>
    send(
      message.type === RESULT
        ? { ...message, data: { ...message.data, items: ranked(message.data.items) } }
        : message,
    );

  addEventListener("message", (event) => {
    const { type, data } = event.data;
    if (type === SETUP) parts = new RegExp(data.config.separator);
    if (type === QUERY) asked = data;
    if (loaded) return;
    loaded = true;
    importScripts(location.pathname.replace(/\.js$/, ".engine.js"));
    dispatchEvent(new MessageEvent("message", { data: event.data })); // the engine listens only now
  });
})();
