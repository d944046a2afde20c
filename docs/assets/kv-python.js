/* Python in a worker: the pages "Your model", the log reader and the claims ledger start it on a click. The first message is the manifest of
   assets/python/; every file is held against its digest before it is used. Then each message is a
   question, and each answer is what the library says. */

/* Files by the address at which the runtime asks for them. */
const ready = new Map();
/* Pages that ask one function: where it is, by the name of their message. */
const ANSWERS = {
  log: "kvreport.startup_log.in_browser",
  file: "kvreport.cli.preflight",
  claim: "kvreport.evidence.claim_check",
};
const answers = {};
let ask = null, runtime = null;

self.onmessage = async (event) => {
  const { id, start, ...asked } = event.data;
  try {
    if (start) postMessage({ id, result: await boot(start) });
    else {
      const [[name, given]] = Object.entries(asked);
      if (name in ANSWERS) {
        answers[name] ||= runtime.runPython(`from ${ANSWERS[name]} import answer; answer`);
        postMessage({ id, ...JSON.parse(answers[name](runtime.toPy(given))) });
      } else postMessage({ id, ...JSON.parse(ask[name](given)) });
    }
  } catch (error) {
    postMessage({ id, error: String(error.message || error).trim().split("\n").pop() });
  }
};

async function boot({ base, files, info }) {
  const fetched = await fetchAll(base, files);
  for (const [name, content] of fetched) ready.set(new URL(name, base).href, content);
  const own = self.fetch;
  self.fetch = (asked, options) => {
    const content = ready.get(new Request(asked).url);
    return content ? Promise.resolve(new Response(content, { headers: typeOf(asked) })) : own(asked, options);
  };
  postMessage({ stage: "Starting Python" });
  const { loadPyodide } = await import(new URL("pyodide.mjs", base).href);
  const python = await loadPyodide({
    indexURL: base,
    lockFileContents: JSON.stringify({ info, packages: {} }),
  });
  self.fetch = own;
  runtime = python;
  postMessage({ stage: "Loading kvreport" });
  const site = python.runPython("import site; site.getsitepackages()[0]");
  python.unpackArchive(fetched.get("pydantic_core.whl"), "wheel");
  python.unpackArchive(fetched.get("kvreport.zip"), "zip", { extractDir: site });
  ready.clear();
  const session = python.runPython("from kvreport.estimation.your_model import Session; Session()");
  ask = { question: (text) => session.question(text) };
  for (const name of ["read", "parts", "header"]) ask[name] = (given) => session[name](python.toPy(given));
  return python.runPython(
    "import kvreport, sys; f'kvreport {kvreport.__version__}, Python {sys.version.split()[0]}'",
  );
}

/* A compiled module is compiled while it arrives only if its type is right. */
function typeOf(asked) {
  return {
    "content-type": new Request(asked).url.endsWith(".wasm")
      ? "application/wasm"
      : "application/octet-stream",
  };
}

async function fetchAll(base, files) {
  const all = files.reduce((sum, file) => sum + file.bytes, 0);
  let done = 0;
  const fetched = new Map();
  await Promise.all(files.map(async (file) => {
    const answer = await fetch(new URL(file.file, base));
    if (!answer.ok) throw new Error(`${file.file}: the server answers ${answer.status}`);
    const parts = [];
    const reader = answer.body.getReader();
    for (;;) {
      const { value, done: ended } = await reader.read();
      if (ended) break;
      parts.push(value);
      done += value.length;
      postMessage({ stage: "Loading Python", done, all });
    }
    let content = await new Blob(parts).arrayBuffer();
    const digest = await crypto.subtle.digest("SHA-256", content);
    const hex = Array.from(new Uint8Array(digest), (byte) => byte.toString(16).padStart(2, "0")).join("");
    if (hex !== file.sha256) {
      throw new Error(`${file.file} is not the file that this site was built with; reload the page`);
    }
    if (file.packed) {
      const stream = new Blob([content]).stream().pipeThrough(new DecompressionStream("gzip"));
      content = await new Response(stream).arrayBuffer();
    }
    fetched.set(file.name, content);
  }));
  return fetched;
}
