/* Free text becomes a state, "llama 70b 2x4090 32k fp8", and the way to its answer. Every word is used, or is named as
   not used. Where a word that changes the question is not used, the way leads to another page or to a command, and
   no answer of this page is shown. Needs kv-kernel.js, kv-state.js and the names of kv-picker.js. */
(function () {
  "use strict";

  const { plainName, count, tokens } = kvreport;

  const FORMATS = {
    released: ["weights", "released"],
    bf16: ["weights", "bf16"],
    fp16: ["weights", "bf16"],
    "16bit": ["weights", "bf16"],
    fp8: ["weights", "fp8"],
    "8bit": ["weights", "fp8"],
    int4: ["weights", "int4"],
    awq: ["weights", "int4"],
    gptq: ["weights", "int4"],
    "4bit": ["weights", "int4"],
    w4a16: ["weights", "int4"],
    nvfp4: ["weights", "nvfp4"],
    mxfp4: ["weights", "mxfp4"],
  };
  const FILLERS = new Set(
    ("a an and at can context for from gpu gpus how in it many model of on one per run size tokens token " +
      "the to what will with x fit fits serve does do i my me is users user requests request please using use single " +
      "that models llm llms need needs want running memory max longest maximum most compare compared vs versus against hold holds more replica replicas number numbers and or which weight weights " +
      "mix kv get be num_ctx n_ctx length each send sends much vram enough quant quants quantized quantised quantization possible work works ctx card cards at as by into its your our server servers hosting host inference setup go long cache least has have had we you are main left beside card's once who concurrent simultaneous gb gib " +
      "these those this them they their there then take takes taking switch turn off only just also still would could should sessions session if so some any all team wants give bring brings pasted paste url – — serves difference capacity between contexts not help helps exactly case link boss")
      .split(
        " ",
      ),
  );

  /* Words that ask for a choice or a figure that no state has: they are no names, and no answer stands next to them. */
  const CHOICE =
    /^(best|better|largest|biggest|smallest|minimum|strongest|smartest|top|recommend(ed)?|newest|latest)$/;
  const COST = /^(cheap|cheapest|costs?|prices?|rent|budget|\$\S*)$/;
  /* What something takes of the memory is no price. */
  const COSTS = /^costs?$/;
  const IN_MEMORY =
    /\bcosts?\b(?!.*[$€]).*\b(tokens|memory|vram|cache|gi?b)\b|\b(tokens|states?|pictures?|images?|screenshots?|photos?)\b.*\bcosts?\b(?!.*[$€])/i;
  const SPEED =
    /^(tok\/s|tokens\/s(ec)?|t\/s|tps|tok|toks|speed|fast|faster|fastest|slow|latency|latencies|waits?|waiting|percentiles?|ttft|tpot|throughput|qps|rps)$/;
  /* Words that ask what a format saves: the answer is followed by that of the release's own format. */
  const HOW_LONG = /\bhow (long|fast|quick(ly)?|slow)\b|\b(time|seconds|latency)\b/i;
  const SAVING = /^(fewer|saves?|saved|savings?|reduces?|reduction|shrinks?|doubl(es?|ing)|halv(es?|ing))$/;
  const CHANGE = /^changes?$/;
  /* Words for what a page gives to take away. */
  const TAKEN_AWAY =
    /^(charts?|embed|badge|png|svg|csv|readme|iframe|bibtex|cite|citing|citation|prints?|printed|pdf)$/;
  /* What people use a model for, and how names say it. */
  const USES = {
    coding: "coder",
    code: "coder",
    programming: "coder",
    vision: "vision",
    chat: "",
    agents: "",
    agentic: "",
    agent: "",
    rag: "",
    roleplay: "",
    writing: "",
    reasoning: "",
  };

  /* Words of many names, and of the language: they name a model only at the beginning of its name, before its next
     word ("command r"). */
  const KINDS = new Set(
    ("pool pools prefill decode coder coding instruct chat vision vl omni base it mini small medium large nano pro flash air lite " +
      "next thinking reasoning max preview turbo plus ultra super fp8 nvfp4 awq gptq int4 int8 gguf moe dense agent agents ai " +
      "alpha beam beta big bit cascade classification claude clustering code command community context distill distilled dynamic " +
      "eagle edition embedding embeddings en english expanse explore flint foundation guard hf horizon hub inference int intern japanese korean " +
      "lightning linear ling liquid long mamba matching mlx models net north open opus oss platform project quants realtime recurrent " +
      "reflection research reranker retrieval reward ring sage seed solar spark static step swift team text think tiny to transcribe " +
      "uncensored unlimited vllm world zero").split(" "),
  );

  /* Words that change an answer wherever they stand, and that no state has: engines, formats and settings. */
  const CHANGES = new RegExp(
    `^(${
      ("tgi lmdeploy exllama\\S* exl[23] tabbyapi aphrodite mlc\\S* ktransformers transformers tensorrt\\S* trt\\S* nim dynamo " +
        "bnb bitsandbytes nf4 int[1-9]\\d? fp[1-9]\\d? \\d-?bits? w\\d+a\\d+ turboquant\\S* dp tp pp ep dcp cp sp lora loras " +
        "qlora adapters? drafts? drafter speculative speculation mtp eagle\\d? medusa dflash n-?gram offload\\S* cpu ram nvme " +
        "swap finetun\\S* fine-tun\\S* train\\S* mig slice spot tpu npu").split(" ").join("|")
    })$`,
  );
  /* The flag of the command that says a word of these; `#` stands for the number before the word. */
  const FLAGS = {
    mtp: "--draft mtp",
    ngram: "--draft ngram",
    "n-gram": "--draft ngram",
    lora: "--max-loras #",
    loras: "--max-loras #",
    adapter: "--max-loras #",
    adapters: "--max-loras #",
  };
  /* Engines that only the command line has. */
  /** @type {[RegExp, string][]} */
  const ELSEWHERE = [[/^(tensorrt|trt)\S*$/, "tensorrt-llm"], [/^transformers$/, "transformers"]];
  /* Slices of a GPU, by the names of MIG. */
  const SLICE = /^\d+g\.\d+gb$/;
  const SLICE_WORD = /^(\d+g\.\d+gb|slices?|mig|partitions?)$/;
  const ADAPTERS = /^(qloras?|loras?|adapters?)$/;
  /* Pages about words that no setting says: [pattern of the word, what its page says, address]. */
  /** @type {[RegExp, string, string][]} */
  const TOPICS = [
    [
      /^(idle|stays?|remains?|evict(s|ed|ion)?)$/,
      "how many idle sessions stay cached",
      "questions/agents-and-idle-sessions/",
    ],
    [/^(qloras?|loras?|adapters?|rank=\d+)$/, "how much memory LoRA adapters take", "questions/lora/"],
    [
      /^(drafts?|drafter|speculative|speculation|mtp|eagle\d?|medusa)$/,
      "what draft models cost",
      "questions/drafts/",
    ],
    [
      /^(prefill|decode|pools|disaggregat(ed|ion))$/,
      "prefill and decode on separate GPUs",
      "questions/prefill-decode-ratio/",
    ],
    [/^(offload\S*|cpu|ram|nvme|swap)$/, "what host memory adds", "questions/host-offload/"],
    [/^cudagraphs?$/, "what CUDA graphs take", "questions/cuda-graphs/"],
    [/^dcp$/, "what decode context parallelism gives", "questions/decode-context-parallel/"],
    [
      /^(images?|pictures?|screenshots?|photos?|multimodal)$/,
      "how much memory images take",
      "questions/images/",
    ],
    [
      /^-*max[-_](num[-_]seqs|running[-_]requests)$/,
      "what --max-num-seqs changes in memory",
      "questions/max-num-seqs/",
    ],
    [
      /^-*max[-_]num[-_]batched[-_]tokens$/,
      "what --max-num-batched-tokens changes in memory",
      "questions/batched-tokens/",
    ],
    [/^-*max[-_]model[-_]len$/, "which --max-model-len fits", "questions/max-model-len/"],
    [
      /^-*gpu[-_]memory[-_]utilization$/,
      "which memory share a load needs",
      "questions/utilization/",
    ],
    [/^-*mem[-_]fraction[-_]static$/, "how to set --mem-fraction-static", "questions/mem-fraction-static/"],
    [/^-*kv[-_]cache[-_]dtype$/, "what a quantized KV cache saves", "questions/quantised-cache/"],
  ];
  const A_FLAG = /^-*[a-z]+[-_][a-z]+[-_]/;
  /* People and how often each of them asks: they are no requests at once, which the sizer computes from them. */
  const PEOPLE =
    /\b(\d[\d,]*)\s+(people|persons|users|employees|staff|colleagues|coworkers|students|customers|members|developers|devs|engineers|programmers|researchers|analysts)\b/i;
  const AT_ONCE = /^(people|persons|users|developers|devs|engineers|programmers|researchers|analysts)$/i; // without a pace these are counted as requests
  const ASK = "(?:\\b(?:ask|send|mak)(?:e?s|e|ing)?\\s+)?";
  const UNIT = "(second|sec|minute|min|hour)s?\\b";
  const PACE = new RegExp(
    `${ASK}(?:(\\d+(?:\\.\\d+)?|\\ban?|\\bone)\\s+(?:questions?|requests?|prompts?|messages?|queries|chats?|calls?|times)` +
      `(?:\\s+each)?|\\b(once|twice))\\s*(?:\\/|\\ban?\\b|\\bper\\b|\\beach\\b|\\bevery\\b)\\s*${UNIT}`,
    "i",
  );
  const INTERVAL = new RegExp(
    `${ASK}(?:\\b(?:an?|one)\\s+(?:question|request|prompt|message)\\s+|\\bonce\\s+)?\\bevery\\s+(\\d+)\\s*${UNIT}`,
    "i",
  );
  const PER_MINUTE = { second: 60, sec: 60, minute: 1, min: 1, hour: 1 / 60 };
  /* Requests in a time, of nobody in particular: "20 requests per second", "20 qps". */
  const LOAD =
    /\b(\d[\d,]*(?:\.\d+)?)\s*(?:(?:requests?|questions?|prompts?|messages?|queries|calls?)\s*(?:\/|\ban?\b|\bper\b|\bevery\b)\s*(s|second|sec|minute|min|hour)\b|[qr]ps\b)/i;
  /* How long a request takes: "answers in 8 seconds", "8 s each". */
  const DURATION =
    /\b(?:answers?|responses?|replies|requests?|each|it|one|latency)\s+(?:(?:come|is|are|arrives?|done|ready)\s+)*(?:in|within|of|after|takes?|taking|lasts?)\s+(?:about\s+)?(\d+(?:\.\d+)?)\s*s(?:ec(?:ond)?s?)?\b|\b(\d+(?:\.\d+)?)[\s-]*s(?:ec(?:ond)?s?)?\s+(?:per|an?|each|for (?:each|an?))(?:\s+(?:answer|request|response|question))?\b/i;
  /* Lengths of a request and its latency, which the sizer asks for: "2,000 tokens of prompt and 500 of answer". */
  const LENGTH = "(\\d[\\d,]+|\\d+(?:\\.\\d+)?k)";
  const PART = "(prompts?|inputs?|outputs?|answers?|completions?|responses?|replies)";
  const LENGTHS = new RegExp(
    `\\b${LENGTH}\\s*(?:tokens?\\s*)?(?:(?:of|in|for)\\s+)?(?:(?:the|system|shared|common)\\s+)*${PART}\\b(?:\\s+tokens?\\b)?|` +
      `\\b${PART}\\s*(?:tokens?|lengths?|size)?\\s*(?:of|:|=|is)?\\s*${LENGTH}\\b(?!\\s*(?:m?s(?:ec|\\b)|users?\\b|requests?\\b|people\\b|agents?\\b|[x×]))(?:\\s+tokens?\\b)?`,
    "gi",
  );
  const FIRST_TOKEN =
    /\b(?:(?:time to )?first token|ttft)\s*(?:latency\s*)?(?:within|in|under|below|at most|after|less than|of|<=?|≤|=|:)?\s*(\d+(?:\.\d+)?)\s*(ms|milliseconds?|s|sec|seconds?)\b/i;
  /* A prompt that all requests begin with, and how far predictions are off; the words of both are no names. */
  const SHARED =
    /\b(same|shared|common) (system )?(prompts?|prefix(es)?)\b|\bsystem prompts?\b|\bprefix[ -]cach\w*\b(?!.*\bhit)/i;
  const SHARED_WORD =
    /^(prefix(es)?|prefix-cach\w*|cach\w+|same|shared|sharing|common|system|prompts?|saves?|save|hybrids?|recurrent|states?|such)$/;
  const ACCURACY =
    /\b(how (accurate|exact|precise|far off)|accura(te|cy)|(error|margin) (figures?|bands?|bars?|of|for|in)\b(?! memory))/i;
  const ACCURACY_WORD =
    /^(accura(te|cy)|errors?|figures?|bands?|bars?|margins?|exact|precise|far|off|prediction\w*|estimates?)$/;
  const LAYOUTS = /\blayouts?\b|(?<!\b(?:tensor|pipeline|data|expert|context)[ -])\bparallelism\b/i;
  const LAYOUTS_APART =
    /\b(tp|ep|dp|pp|dcp) ?\d*\b.{0,60} (vs\.?|versus|or|against|than|compared (?:to|with)) .{0,20}\b(tp|ep|dp|pp|dcp) ?\d*\b/i;
  const LAYOUTS_BEST = new RegExp(`${LAYOUTS.source}|\\b(is|are|works?) best\\b`, "i");
  const LAYOUTS_WORD = /^([tped]p|dcp|layouts?|parallelism|better|than|expert|tensor|data|over|changes?)$/;
  const SCREENS = { "4k": [3840, 2160], "1440p": [2560, 1440], "1080p": [1920, 1080], "720p": [1280, 720] };
  const SCREEN = /\b(4k|1440p|1080p|720p)(?=\s+(?:images?|pictures?|screenshots?|photos?)\b)/i;
  const PIXELS = /\b(\d{3,4})\s*[x×]\s*(\d{3,4})\b(?:\s*(?:px|pixels?))?/i;
  /* A figure that somebody states: "2.5 MB of KV cache per token". */
  const STATED =
    /\b(\d+(?:\.\d+)?)\s*(bytes?|[kmg]i?b|b)\s*(?:of\s+)?(?:the\s+)?(?:kv[\s-]*cache|kv|cache|memory|vram)?\s*(?:per|for (?:each|every)|each|every|an?|\/)\s*token\b/i;
  const DOUBTED = /\b(true|claim\w*|says?|said|really|correct|right|heard)\b/i;
  const STATED_WEIGHTS =
    /\b(\d+(?:\.\d+)?)\s*([kmgt]i?b)\b(?:\s+of\s+(?:vram|memory|ram))?(?=[^.?!]{0,40}\bweights\b)/i;
  const PER_TOKEN = /\b(bytes|cache|size|memory) (?:of \w+ )?per token\b|\bcache of (?:1|one|a) token\b/i;
  /* A size of memory that is a bound: "at most 24 GB". */
  const AT_MOST =
    /(?:\b(?:at most|up to|under|below|within|no more than|not more than|less than|maximum)|<=?|≤)\s*(\d+)\s*gi?b\b|\b(\d+)\s*gi?b\s+(?:or less|or smaller|at most|max(?:imum)?)\b/i;
  /* An id of a model hub, "acme/foo-7b". */
  const HUB_ID = /^(?=[^/]*[a-z])[a-z0-9][\w.-]*\/[\w.-]*[a-z][\w.-]*$/;

  /* Start commands that the box reads itself, by engine. */
  const SERVERS = {
    vllm: /\b(?:vllm serve|python3? -m vllm\.entrypoints\.openai\.api_server)\s/,
    sglang: /\b(?:sglang serve|python3? -m sglang\.launch_server)\s/,
  };
  const START =
    /(?:^|\s)(vllm serve|sglang serve|trtllm-serve|mlx_lm\.server|python3? -m (?:vllm|sglang|mlx_lm|dynamo)[\w.]*|llama-server|llama-cli|llama serve|lms load|ollama run|(?:docker|podman|nerdctl) run)\s/i;

  /* Files that say how servers are deployed, and their names. */
  const FILE =
    /(^|\s)(apiVersion|services|containers|spec):(\s|$)|\[Service\]|\bExecStart=|(^|\s)image:\s*\S+\/\S+/;
  const FILE_NAMED =
    /\b(docker[ -]?compose|compose (files?|ya?ml)|kubernetes|k8s|helm|kserve|systemd|deployment (files?|ya?ml))\b/i;
  const EVERY = /\b(?:all|every|each)\b(?: (?:the|of|sizes?|versions?))* \S+(?: \S+)? models?\b/i;
  const IN_CI = /\b(ci|ci\/cd|pipelines?|github actions?|gitlab|workflow|pre-commit|pull requests?)\b/i;
  /* A start-up log: how its lines begin, what some of them say, and its name. */
  const LOG_PREFIX =
    /\b(INFO|WARNING|ERROR|DEBUG) \d\d-\d\d \d\d:\d\d:\d\d\b|^(INFO|WARNING|ERROR): +\S|\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\S*( \w+)*\]|\((EngineCore|Worker|APIServer)\w* pid=\d+\)|^(llama_\w+|load_tensors|print_info|llm_load_\w+): /m;
  const LOG_LINE =
    /\bStarting to load model \S+\/|\bModel loading took \d|\bLoading weights took \d|\bLoad weight end\b|\bAvailable KV cache memory: -?\d|\bGPU KV cache size: \d|\bMaximum concurrency for \d\S* tokens per request: |\bGraph capturing finished in \d|\bmax_total_num_tokens=\d|\bKV Cache is allocated\b|# (GPU|CUDA) blocks: \d/;
  const LOG_NAMED = /^\s*(a |my |the )?(start-?up|server|engine)[ -]?logs?\s*$/i;
  /* A recorded load, and the share of requests that a bound of latency is for: no memory share. */
  const TRACE =
    /\bhit[ -]?rates?\b|\b(traces?|replay(s|ed|ing)?)\b|\b(have|my|our|upload|import) (an? )?csv\b/i;
  const TRACE_WORD = /^(hit|rates?|prefix|cach\w+|traces?|replay(s|ed|ing)?|csv)$/;
  const PERCENTILE =
    /\b\d{1,2}(\.\d+)?\s*%(?=\s+(of (the |all )?\w+ )?(\w+ )?(wait\w*|latenc\w*|percentiles?|ttft|tpot|first tokens?)\b)/gi;
  const UPGRADE = /\b(upgrad|updat|migrat|mov|switch|go)(e[sd]?|ing)?\b|\bchang(es?|ed)\b/i;
  const UPGRADE_WORD =
    /^((upgrad|updat|migrat|mov|switch|go|chang)(es?|ed|ing)?|if|when|between|happens|break\w*)$/;
  const SIZE_ASKED = /\bhow (?:much|many)\b|\b(?:vram|memory|needs?)\b/i;
  const OWN_RELEASE =
    /\bkvreport\b.*\b(releases?|versions?|changelog|older|newer|chang(es?|ed))\b|\b(releases?|versions?|changelog|numbers)\b.*\bkvreport\b|\b(older|earlier|previous) (release|version)s? of (the|this|your) (data|dataset|site|tables?|numbers)\b/i;
  const AGENTS = /\b\d+ (coding )?agents?\b/i;
  const SMALLEST =
    /\b(smallest|least|minimum|min|weakest|cheapest|single|one|lowest|smallest single|cheapest single) (gpu|card|vram|accelerator)\b/i;
  /* A computer without a GPU: what says so, and names of processors. No machine is meant by them. */
  const NO_GPU =
    /\b(?:no|without(?: an?| any)?|lacks?(?: an?)?) (?:dedicated |discrete )?(?:gpus?|graphics cards?)\b(?! memory)|\bcpu[- ]only\b|\b(?:only|on|by|with) (?:an? |my |the )?cpu\b/gi;
  const PROCESSOR =
    /\b(?:(?:dual|two|2x?)\s+)?(?:(?:amd|intel)\s+)?(?:ryzen\s*[3579]|core\s+(?:ultra\s+|i)[3579]|i[3579](?=\s|-\d|$)|threadripper|epyc|xeon)(?:[\s-]+(?:pro|gold|silver|platinum))?(?:[\s-]+\d{4,5}[a-z0-9]*)?/gi;
  const RAM =
    /\b(\d+)\s*gi?b\b(?:\s+(?:of\s+)?(?:(?:system|main|host|ddr\d)\s+)*(?:ram|memory|ddr\d)\b)?|\bram\b/gi;
  const OF_RAM = /\b\d+\s*gi?b\s+(?:of\s+)?(?:(?:system|main|host|ddr\d)\s+)*(?:ram|ddr\d)\b/i;
  const IN_SERVER = 8; // GPUs of a usual server
  /* Several accelerators that are one machine: "one 4090 and one 3090 in one PC". */
  const TOGETHER =
    /\b(?:in(?:side)?|on|into|as)\s+(?:the\s+)?(?:one|an?|my|the|this|same|single)\s+(?:same\s+|single\s+)?(?:pc|computer|machine|box|rig|workstation|desktop|system|case|server|node|host|motherboard)\b|\b(?:both )?(?:together|combined|mixed)\b/i;
  const APART = /\b(vs|versus|or|than|compare[ds]?|against|better)\b/i;

  const NUMBERS = { two: 2, three: 3, four: 4, five: 5, six: 6, eight: 8, sixteen: 16, dual: 2, quad: 4 };

  /* [pattern, the change of the state, what it says] of a word or of two; the words are lower case. */
  /** @type {[RegExp, (m: string[]) => object, (m: string[]) => string][]} */
  const PATTERNS = [
    [/^tp[= ]?(\d+)$/, (m) => ({ tp: Number(m[1]) }), (m) => `tensor parallel ${m[1]}`],
    [/^pp[= ]?(\d+)$/, (m) => ({ pp: Number(m[1]) }), (m) => `pipeline parallel ${m[1]}`],
    [/^dp[= ]?(\d+)$/, (m) => ({ dp: Number(m[1]) }), (m) => `data parallel ${m[1]}`],
    [/^dcp[= ]?(\d+)$/, (m) => ({ dcp: Number(m[1]) }), (m) => `decode context parallel ${m[1]}`],
    [
      /^(\d{1,2}|one|single) (?:servers?|nodes?|machines?|hosts?)$/,
      (m) => ({ nodes: Number(m[1]) || 1 }),
      (m) => (Number(m[1]) > 1 ? `${m[1]} servers` : "one server"),
    ],
    [/^(\d{1,2}) (?:gpus?|cards?)$/, (m) => ({ tp: Number(m[1]) }), (m) => `${m[1]} GPUs`],
    [/^dp$/, () => ({ dp: "all" }), () => "data parallel"],
    [/^ep=?(\d+)$/, () => ({ ep: true }), () => "expert parallel"],
    [/^ep$/, () => ({ ep: true }), () => "expert parallel"],
    [
      /^(\d[\d,]*)\s?(users?|requests?|people|concurrent|agents?|developers?|devs?|engineers?|programmers?|researchers?|analysts?|sessions?|chats?)$/,
      (m) => ({ requests: Number(m[1].replaceAll(",", "")) }),
      (m) => `${m[1]} concurrent requests`,
    ],
    [/^(\d{1,3}(?:\.\d+)?)%$/, (m) => ({ share: Number(m[1]) / 100 }), (m) => `memory share ${m[1]}%`],
    [
      /^(?:-{0,2}(?:gpu[-_]?)?(?:memory[-_]?)?)?(?:util|utilization|share)=?\s?(0?\.\d+)$/,
      (m) => ({ share: Number(m[1]) }),
      (m) => `memory share ${m[1]}`,
    ],
    [
      /^-{0,2}mem[-_]fraction(?:[-_]static)?=?\s?(0?\.\d+)$/,
      (m) => ({ share: Number(m[1]), engine: "sglang" }),
      (m) => `memory share ${m[1]} (--mem-fraction-static)`,
    ],
    [
      /^-{0,2}max[-_]num[-_]seqs[= ](\d+)$/,
      (m) => ({ seqs: Number(m[1]) }),
      (m) => `max_num_seqs ${m[1]}`,
    ],
    [
      /^-{0,2}max[-_]num[-_]batched[-_]tokens[= ](\d+)$/,
      (m) => ({ batched: Number(m[1]) }),
      (m) => `max_num_batched_tokens ${m[1]}`,
    ],
    [/^-{0,2}enforce[-_]eager$/, () => ({ eager: true }), () => "without CUDA graphs"],
    [
      /^-{0,2}kv[-_]cache[-_]dtype[= ](fp8|bf16)$/,
      (m) => ({ kv: m[1] }),
      (m) => `KV cache ${m[1].toUpperCase()}`,
    ],
    [/^(?:kv|cache)[= ](fp8|bf16)$/, (m) => ({ kv: m[1] }), (m) => `KV cache ${m[1].toUpperCase()}`],
    [/^(fp8|bf16) (?:kv|cache)$/, (m) => ({ kv: m[1] }), (m) => `KV cache ${m[1].toUpperCase()}`],
  ];

  /* Formats of the cache without an answer here; weights in them are another question. */
  const OTHER_CACHE =
    /^((int[48]|[48]-?bit|nvfp4|turboquant\S*|q\d\S*) (kv|cache|kv-cache)|(kv|cache|kv-cache) (int[48]|[48]-?bit|nvfp4|turboquant\S*|q\d\S*))$/;

  /* Programs and files of one computer: another page has their numbers. */
  const AT_HOME =
    /^(ollama|llama\.?cpp|llama-server|lm-?studio|gguf|mlx(-lm)?|koboldcpp|ik_llama|llamafile|jan|(ud-)?i?q[1-8](_[a-z0-9]+)*)$/;
  /* The usual mix of a number of bits. */
  const USUAL_MIX = { q2: "q2_k", q3: "q3_k_m", q4: "q4_k_m", q5: "q5_k_m", q6: "q6_k", q8: "q8_0" };
  /* What a format of servers is called there. */
  const AS_MIX = { int4: "q4_k_m", fp8: "q8_0", bf16: "bf16" };
  const MIX = /^(?:ud-)?(i?q[1-8](?:_[a-z0-9]+)*)$/;

  const MAC = /^(mac|macs|macbook|macbooks|imac)$/;
  const MAC_FORM = /^(studio|mini|pro|air)$/;

  /* Asks for a number of devices; not of requests or tokens. */
  const HOW_MANY =
    /\b(how many|fewest|(?:minimum|smallest|least|lowest) number of|min(?:imum)?(?= gpus?\b| cards?\b)) (?!(concurrent |parallel |simultaneous )?(users|requests|people|stay|remain|fit|are|tokens|agents|developers|devs|engineers|sessions|chats|layers|loras?|adapters|models|experts|gi?b)\b)/i;

  const SECONDS = /^(m?s|secs?|seconds?)$/;
  const HOURLY =
    /(?:\bat\s+)?(?:[$€]\s*\d+(?:\.\d+)?|\b\d+\.\d\d?|\bat\s+\d+)\s*(?:usd|eur|dollars?)?\s*(?:per|an?|\/)\s*(?:gpu[- ]?)?(?:hours?|hrs?|h)\b/i;
  const RELEASE = /^v?\d{1,2}(\.\d{1,2})?$/;
  const CARD = /^(rtx|gtx|rx|geforce|radeon|arc|quadro)$/;
  const ONE = /^(a|an|one|single)$/;
  const BEFORE_DEVICES = /^(on|with|across|over|using|needs?)$/;
  /* What tells the releases of one name apart: the 3.3 of "Llama 3.3 70B", the 2411 of "Mistral Large 2411". */
  const SIZE = /^a?\d+(\.\d+)?b$/;
  const RELEASE_WORD = /^(v?\d+(\.\d+)*|instruct)$/;

  /* The words of a text: lower case, counts as "8x", sizes as "24gb", flags and layouts by their short names. */
  function wordsOf(text) {
    return text.toLowerCase().replace(/['’]s\b/g, "").replace(/[?!;()[\]{}"“”‘’`]/g, " ").replace(
      /,(?!\d{3})/g,
      " ",
    )
      .replace(/-*\b(?:ollama_kv_)?cache[-_]type(?:[-_][kv])?[= ]+(?=q\d)/g, "cache ")
      .replace(/\b(?:kv|cache)(?:[ -]cache)? (?:in|as|at|with) (?=(?:fp8|bf16|int[48]|nvfp4)\b)/g, "kv ")
      .replace(/\b(?:largest|biggest|greatest) (?=(?:possible )?context\b)/g, "longest ")
      .replace(/\bbatch(?: size)?(?: of)? (\d+)(?!\d*k?\b tokens)\b/g, "$1 requests")
      .replace(/\b\d+ (?:to|-|–) (?=\d+ (?:users?|requests?|people|developers?|engineers?)\b)/g, "")
      .replace(/\blm studio\b/g, "lm-studio").replace(/\bllama cpp\b/g, "llama.cpp")
      .replace(/([a-z0-9.]):(?=\d+(?:\.\d+)?b)/g, "$1 ") // qwen3:32b
      .replace(/(\S)[-.:]((?:ud-)?i?q[1-8](?:_[a-z0-9]+)*)(?:\.gguf)?(?=\s|$)/g, "$1 $2")
      .replace(/-*\btensor[- ]parallel(?:ism)?(?:-size)?\b/g, "tp")
      .replace(/-*\bpipeline[- ]parallel(?:ism)?(?:-size)?\b/g, "pp")
      .replace(/-*\bdata[- ]parallel(?:ism)?(?:-size)?\b/g, "dp")
      .replace(/-*\b(?:enable-)?expert[- ]parallel(?:ism)?\b/g, "ep")
      .replace(/(^|\s)-{1,2}(?=(?:tp|pp|dp|ep|dcp)\b)/g, "$1").replace(
        /-*\bmax[-_]model[-_]len\b(?:=|\s+)(?=\d)/g,
        " ",
      )
      .replace(/\b(tp|pp|dp|dcp|ep)(\d*)[+/&](?=(?:tp|pp|dp|dcp|ep))/g, "$1$2 ")
      .replace(/\bcuda[\s-]graph/g, "cudagraph").replace(/\beagle-(?=\d)/g, "eagle").replace(
        /\bspeculative decoding\b/g,
        "speculative",
      ).replace(/(\d)\s*(?:->|→|=>)\s*(?=v?\d)/g, "$1 to ")
      .replace(/\b(vllm|sglang) +(?:(?:from|between|releases?|versions?) +)+(?=v?\d)/g, "$1 ")
      .replace(/\b(vllm|sglang)[ @]v(?=\d)/g, "$1 ").replace(/\b(to|and|or) v(?=\d+\.\d)/g, "$1 ")
      .replace(/\btokens?\s+per\s+sec(?:ond)?\b/g, "tokens/s")
      .replace(/\b(\d{1,2})[\s-]?bits?\b/g, "$1bit").replace(/\b(lora) (?=adapters?\b)/g, "").replace(
        /(\d) coding (?=agents?\b)/g,
        "$1 ",
      )
      .replace(/(^|\s)w\/(?:\s*)/g, "$1").replace(/[.:…]+(?=\s|$)/g, " ")
      .replace(/\b(two|three|four|five|six|eight|sixteen|dual|quad)\b(?=\s+\S)/g, (word) => NUMBERS[word])
      .replace(/\b(\d{4,6})\s*mi?b\b/g, (_, number) => `${Math.round(number / 1024)}gb`) // as drivers print it
      .replace(/(\d)\s+gi?b\b/g, "$1gb").replace(/(\d)gib\b/g, "$1gb")
      .replace(/\s[x×*]\s*(?=\d\d?(\s|$))/g, " ").replace(
        /(\d)\s*[x×*]\s*(?=[a-z0-9])(?!\d+b\b|large\b)/g,
        "$1x ",
      )
      .replace(/\brank (?=\d+\b)/g, "rank=").replace(
        /\b\d+ (?=(?:images?|pictures?|screenshots?|photos?)\b)/g,
        "",
      )
      .split(/\s+/).filter(Boolean);
  }

  /* What a text was taken for:
     state: fields of the page's state;
     understood: what they are, in words;
     missed: words that nothing here has;
     home: words of programs, files and machines of one computer; machine: the id of that machine;
     forms: two changes of the state, between which the question chooses;
     gpus: ids of further accelerators, which a comparison has; each: [accelerator, number] where their numbers differ;
     unlisted: a name with another release number than the model's;
     engines: names of the engines that were named; unpublished: releases without numbers here, with the nearest; releases:
     engines and releases as the command line names them;
     workload: lengths and latency that the sizer asks for; claim: a figure that somebody states per token;
     atMost: a bound of memory, in GB;
     shared, accuracy, layouts, file: whether the question is about a prompt that requests share, about errors of predictions,
     about the best layout, about a deployment file;
     asks: words that ask for a choice, a price, a speed or a use;
     also: ids of further models, which a comparison has; formats: the format of one of its models alone, by id;
     hits: words that name the model; others: releases of its name that the words fit too;
     crowd: people and the requests per minute of each, in place of requests at once;
     counts: whether the number of devices is the question;
     unread: of a start command the flags that no page follows; start: that command without the GPU beside it. */
  function understand(asked, site, names) {
    if (isLog(asked)) return logged();
    const started = fromCommand(asked, site, names);
    if (started) return started;
    const computer = withoutGpu(asked, site, names);
    if (computer) return computer;
    const pixels = pixelsIn(asked);
    const [workload, unsized] = workloadIn(pixels ? asked.replace(pixels[0], " ") : asked, site);
    const [crowd, sized] = crowdIn(unsized, workload);
    const uncrowded = sized.replace(TWO_BITS, "$1bit $2 ");
    const weighed = DOUBTED.test(asked) && STATED_WEIGHTS.exec(uncrowded);
    const stated = STATED.exec(uncrowded) || weighed;
    const bound = AT_MOST.exec(uncrowded), atMost = bound ? Number(bound[1] || bound[2]) : undefined;
    const price = HOURLY.exec(uncrowded), cached = cacheFormats(uncrowded);
    const listed = !cached && FORMATS_APART.exec(uncrowded.replace(BITS, "$1bit"))?.[0].toLowerCase();
    const formats = listed ? listed.match(ANY_FORMAT) : [];
    const distinct = new Set(formats.map((word) => FORMATS[word][1])).size;
    const pair = distinct > 1 && distinct === formats.length ? formats : null;
    const setting = settingApart(uncrowded);
    const sizes = sizesApart(uncrowded, names);
    const text = [stated, bound, price, cached, setting].reduce(
      (rest, one) => (one ? rest.replace(one[0], " ") : rest),
      sizes
        ? uncrowded.replace(sizes.said, `tp ${sizes[0]} `)
        : pair
        ? uncrowded.replace(BITS, "$1bit").replace(FORMATS_APART, " ")
        : uncrowded,
    );
    const read = (said) =>
      wordsOf(
        ofServers(
          names,
          ofClouds(names, said).replace(/\b(how) (?:large|big)\b/gi, "$1").replace(HOW_MANY, " ").replace(
            PERCENTILE,
            " ",
          ),
        ),
      );
    const words = read(text);
    const claim = stated && {
      quantity: weighed ? "weights" : "kv_per_token",
      value: stated[1],
      unit: unitOf(stated[2]),
    };
    const state = {},
      understood = [
        crowd?.said,
        ...workload.said,
        claim && `${claim.value} ${claim.unit} ${weighed ? "of weights" : "per token"}`,
        atMost && `at most ${atMost} GB`,
        pixels && `${pixels[1]} × ${pixels[2]} pixels`,
      ].filter(Boolean),
      missed = [],
      left = [],
      asks = price ? ["price"] : [];
    let timed = 0;
    let devices = null, saves = false, small = ""; // small: llama.cpp's cache in Q8_0
    const apart = machineIn(names, words.flatMap((word) => word.split(/(\+)/)).filter(Boolean)) ||
      (TOGETHER.test(text) && !APART.test(text) &&
        machineIn(
          names,
          read(text.replace(TOGETHER, " ").replace(/,(?!\d{3})|&/g, " and "))
            .map((word) => (/^(and|plus)$/.test(word) ? "+" : word)),
          true,
        ));
    if (apart) {
      state.gpu = apart.id;
      understood.push(apart.said);
      words.splice(0, words.length, ...apart.rest);
    }
    for (let n = 0; n < words.length; n += 1) {
      const pair = `${words[n]} ${words[n + 1] || ""}`.trim();
      if (OTHER_CACHE.test(pair)) {
        if (/q8_0|8-?bit/.test(pair)) small = pair;
        else missed.push(pair);
        n += 1;
        continue;
      }
      const taken = [[pair, 2], [words[n], 1]].find(([phrase, size]) => {
        if (size === 2 && words[n + 1] === undefined) return false;
        for (const [pattern, change, say] of PATTERNS) {
          const found = pattern.exec(phrase);
          if (found) {
            const said = Object.entries(change(found));
            // "tp 4 instead of tp 2": the second number is another question.
            if (said.some(([key, value]) => ![undefined, value].includes(state[key]))) missed.push(phrase);
            else {
              Object.assign(state, Object.fromEntries(said));
              understood.push(say(found));
            }
            return true;
          }
        }
        return false;
      });
      if (taken) {
        n += taken[1] - 1;
        continue;
      }
      const times = /^(\d{1,3})x$/.exec(words[n]);
      if (times) {
        const number = Number(times[1]);
        timed += 1;
        if (devices !== null && devices !== number) missed.push(words[n]);
        else devices = number;
        continue;
      }
      if (SAVING.test(words[n])) saves = true;
      else if (
        CHOICE.test(words[n]) || COST.test(words[n]) || SPEED.test(words[n]) ||
        (words[n] in USES && !(n + 1 < words.length && isOneName(names.models, words[n] + words[n + 1])))
      ) {
        asks.push(words[n]);
      } else left.push(words[n]);
    }
    /** @type {any[] & {devices?: number}} */
    const home = [...new Set(left.filter((word) => AT_HOME.test(word)))];
    if (small && (home.length || small.includes("q8_0"))) home.push("cache q8_0");
    else if (small) missed.push(small);
    const engines = [], unpublished = [], releases = [];
    const rest = spelled(
      names,
      engineIn(
        site,
        left.filter((word) => !home.includes(word)),
        state,
        understood,
        engines,
        unpublished,
        releases,
      ),
    );
    missed.push(...unpublished.map(({ said }) => said));
    const counted = engines.length + unpublished.length > 1 ? /^(2|releases?|versions?)$/ : /^$/;
    const statedTp = state.tp;
    const named = apart ? rest : gpuIn(names, rest, state, understood, devices, home);
    const gpus = [];
    const after = !apart && state.gpu
      ? furtherGpus(names, named, timed > 1 ? "" : state.gpu, understood, gpus)
      : named;
    // "4 b200 vs 8 h200", "two 3090 or one RTX PRO 6000": each has a number of its own.
    const sides = gpus.length ? countsOf(names, words) : [];
    const unequal = new Set(sides.map(([, number]) => number || 1)).size > 1;
    const each = unequal && sides.length === gpus.length + 1
      ? sides.map(([id, number]) => [id, number || 1])
      : [];
    if (unequal && !each.length) {
      missed.push(...sides.filter(([, number]) => number > 1).map(([, number]) => `${number}x`));
    }
    if (unequal) {
      const kinds = new Map(site.gpus.map(({ id, name }) => [id, name]));
      const bare = (said) => said.replace(/^(?:and )?(?:one|\d+ ×) /, "");
      understood.splice(
        0,
        understood.length,
        ...understood.filter((said) => ![...kinds.values()].includes(bare(said).replace(/^and /, ""))),
        ...each.map(([id, number]) => `${number > 1 ? `${number} ×` : "one"} ${kinds.get(id)}`),
      );
      missed.splice(0, missed.length, ...missed.filter((word) => !each.length || !/^\d+x$/.test(word)));
      delete state.tp;
      devices = home.devices = undefined;
    }
    if (devices && state.tp === undefined) state.tp = devices;
    const total = devices || home.devices;
    // Expert parallelism on so many GPUs: every layout with it is one.
    const anyWithExperts = state.ep && total > 1 && statedTp === undefined && !state.dp && !state.pp;
    divided(state, statedTp, total, understood, missed);
    acrossServers(state, understood);
    // A Mac has one memory: its size tells which one.
    const mac = after.some((word) => MAC.test(word));
    const ofMac = (word, n) =>
      MAC.test(word) || /^\d+gb$/.test(word) || (MAC_FORM.test(word) && MAC.test(after[n - 1]));
    if (mac) home.push(after.filter(ofMac).join(" "));
    const cards = cardsIn(names.models, mac ? after.filter((word, n) => !ofMac(word, n)) : after, home);
    const more = sizesIn(
      site,
      names.models,
      state.gpu ? cards : memoryIn(site, cards, state, understood, home),
      state,
      understood,
    );
    const makers = /^(nvidia|amd|apple|intel)$/;
    const { unlisted = null, hits = [], others = [] } = modelIn(
      names.models,
      state.gpu || home.length ? more.filter((word) => !makers.test(word)) : more,
      state,
      understood,
      missed,
    );
    // "all Qwen3 models": a list, and not the one of them that is commonly used.
    const family = EVERY.test(asked) && hits.length ? hits.join(" ") : undefined;
    if (family) {
      delete state.model;
      understood[0] = `models named “${family}”`;
    }
    const also = sidesIn(names.models, more, state, understood, missed) ||
      modelsIn(names.models, missed, state, understood);
    const formatsBySide = also.length
      ? formatsOf(names.models, asked, [state.model, ...also], state, understood, missed)
      : {};
    if (gpus.length && !state.model) ofSize(names.models, missed, state, understood);
    checkpointOf(names.models, words, state, understood);
    storedFormat(names.models, state, understood, missed);
    bareShare(state, understood, missed);
    const change = missed.findIndex((word) => CHANGE.test(word));
    if (change >= 0 && (state.kv || state.weights)) {
      missed.splice(change, 1);
      saves = true;
    }
    const apartBy = formatsApart(cached, pair, state, understood);
    saves = apartBy || saves;
    const forms = apartBy || also.length || gpus.length
      ? []
      : formsApart(pair, sizes, setting, state, understood);
    if (sizes && !forms.length) missed.push(...sizes.slice(1).map((size) => `tp ${size}`));
    if (pair && !apartBy && !forms.length) missed.push(...pair);
    if (setting && !forms.length) missed.push(setting[0]);
    if (IN_MEMORY.test(asked) && !price && !/\bmillion\b/i.test(asked)) {
      asks.splice(
        0,
        asks.length,
        ...asks.filter((word) => !COSTS.test(word)),
      );
    }
    let laidOut = []; // layouts of a comparison
    const laid = LAYOUTS_APART.test(wordsOf(asked).join(" "));
    const about = {
      shared: SHARED.test(asked) && !TRACE.test(asked),
      accuracy: ACCURACY.test(asked),
      layouts: Boolean(state.model) && !forms.length &&
        (LAYOUTS.test(asked) || laid || Boolean(anyWithExperts)),
      upgrade: engines.length + unpublished.length > 1 && UPGRADE.test(asked),
      trace: TRACE.test(asked),
      own: OWN_RELEASE.test(asked) && !state.model && !state.gpu,
      agents: AGENTS.test(asked) && !state.model && !state.gpu,
      file: FILE.test(asked) || (FILE_NAMED.test(asked) && !state.model),
    };
    const spoken = [
      about.shared && SHARED_WORD,
      about.accuracy && ACCURACY_WORD,
      counted,
      about.upgrade && UPGRADE_WORD,
      about.trace && TRACE_WORD,
      about.layouts && LAYOUTS_WORD,
      about.layouts && !anyWithExperts && LAYOUTS_BEST.test(asked) && /^best$/,
    ].filter(Boolean);
    for (const list of [missed, asks]) {
      list.splice(
        0,
        list.length,
        ...list.filter((word, n) => list.indexOf(word) !== n || !spoken.some((own) => own.test(word))),
      );
    }
    if (missed.includes("idle")) {
      const place = understood.findIndex((said) => said.endsWith(" concurrent requests"));
      if (place >= 0) understood[place] = understood[place].replace("concurrent requests", "sessions");
    }
    if (about.shared) understood.push("a shared prompt");
    if (about.accuracy) understood.push("errors of predictions");
    if (about.layouts) understood.push(anyWithExperts ? "layouts with it" : "layouts");
    if (about.trace) {
      // Its requests are no requests at once.
      const place = understood.findIndex((said) => said.endsWith(" concurrent requests"));
      if (place >= 0) understood.splice(place, 1);
      delete state.requests;
      understood.push("a recorded load");
    }
    if (about.layouts && laid) {
      // "TP 8 or DP 8": each on as many GPUs.
      const { tp = 1, pp = 1, dp = 1, dcp = 1 } = state;
      const devices = total || Math.max(tp, pp, dp, dcp);
      missed.splice(0, missed.length, ...missed.filter((word) => !/^([tped]p|dcp) \d+$/.test(word)));
      laidOut = layoutsNamed(asked, devices);
      const one = /^(tensor parallel|pipeline parallel|data parallel|\d+ GPUs in each)\b/;
      understood.splice(0, understood.length, ...understood.filter((said) => !one.test(said)));
      for (const name of ["pp", "dp", "ep", "dcp"]) delete state[name];
      state.tp = devices > 1 ? devices : undefined;
      if (missed.includes(`${devices}x`)) missed.splice(missed.indexOf(`${devices}x`), 1);
    }
    if (about.own) {
      missed.length = 0;
      understood.push("releases of kvreport");
    }
    if (about.file) {
      missed.length = 0;
      understood.push("a deployment file");
    }
    const memory = home.map((phrase) => /(?:^| )(\d+gb)$/.exec(phrase)?.[1]).find(Boolean);
    const machine = names.machines.find(({ id }) => id === state.gpu) ||
      home.map((phrase) => machineNamed(names.machines, phrase)).find(Boolean);
    // A card of another size than every one of its name, as a laptop's: no other size answers for it.
    const unlike = machine && machine.id !== state.gpu && CARD.test(machine.plain.match(/rtx|gtx|rx/)?.[0]) &&
      memory &&
      /\d+gb/.test(machine.plain) && !machine.plain.includes(memory) && memory;
    // People own one card of a computer, unless they say another number.
    if (state.gpu && machine && state.tp === undefined && !state.dp && !state.pp) state.tp = 1;
    return {
      state,
      understood,
      missed,
      home,
      gpus,
      each,
      forms,
      unlisted: missed.includes(unlisted?.split(" ").pop()) ? unlisted : null,
      hits,
      others,
      family,
      also,
      formats: formatsBySide,
      kvs: cached?.kvs,
      laid: laidOut,
      pixels: pixels && pixels.slice(1, 3).map(Number),
      asks,
      machine: unlike ? undefined : machine?.id,
      engines,
      unpublished,
      releases,
      workload,
      claim,
      price: price && Number(/\d+(?:\.\d+)?/.exec(price[0])[0]),
      atMost,
      saves,
      counts: HOW_MANY.test(text) && state.tp === undefined,
      crowd,
      ...about,
      adapters: adaptersIn(words, missed),
      topics: topicsIn(missed, understood),
    };
  }

  const isLog = (text) => [LOG_PREFIX, LOG_LINE, LOG_NAMED].some((pattern) => pattern.test(text));

  /* What a log is taken for: its words are of no question. */
  const logged = () => ({
    state: {},
    understood: ["a start-up log"],
    missed: [],
    home: [],
    gpus: [],
    asks: [],
    engines: [],
    log: true,
  });

  /* What a text about a computer without a GPU is taken for, with its memory in GB; null where it names a GPU after all. */
  function withoutGpu(text, site, names) {
    const bare = text.replace(NO_GPU, " ").replace(PROCESSOR, " ");
    if ((bare === text && !OF_RAM.test(text)) || /\binstead\b|\boffload/i.test(text)) return null;
    const found = understand(bare.replace(RAM, " "), site, names), { state, home, missed } = found;
    if (state.gpu || found.log || found.file || home.some((word) => !AT_HOME.test(word))) return null;
    const ram = Number([...bare.matchAll(RAM)].find(([, size]) => size)?.[1]) || 0;
    return {
      ...found,
      cpu: { ram },
      understood: [
        ...found.understood,
        bare === text ? "no GPU named" : "a computer without a GPU",
        ...ram ? [`${ram} GB of RAM`] : [],
        ...home,
      ],
      missed: missed.filter((word) => !/^(large|big)$/.test(word)),
    };
  }

  /* Width and height of an image in pixels, with the words that say them; null where there are none. */
  function pixelsIn(text) {
    const screen = SCREEN.exec(text);
    return screen ? [screen[0], ...SCREENS[screen[1].toLowerCase()]] : PIXELS.exec(text);
  }

  /* The layouts of so many devices between which the words of a comparison stand. A side that names stages or data ranks alone
     has tensors over the other devices. */
  const layoutsNamed = (text, devices) =>
    wordsOf(text).join(" ").split(/ (?:vs\.?|versus|or|against|than|compared (?:to|with)) /).flatMap(
      (side) => {
        const own = Object.fromEntries(
          [...side.matchAll(/\b([tpd]p) ?(\d+)\b/g)].map(([, name, number]) => [name, Number(number)]),
        );
        const servers = /\b(\d+) (?:servers?|nodes?|machines?)\b/.exec(side);
        if (servers && /\bpp\b(?! ?\d)/.test(side)) own.pp = Number(servers[1]);
        const { pp = 1, dp = 1 } = own, tp = own.tp || devices / pp / dp;
        return Object.keys(own).length && tp * pp * dp === devices && Number.isInteger(tp)
          ? [{ tp, pp, dp }]
          : [];
      },
    );

  /* Lengths of prompt and output in tokens and the first token's latency in ms, and the text without them. */
  function workloadIn(text, site) {
    /** @type {{prompt?: number, output?: number, ttft?: number, context?: number, said: string[]}} */
    const found = { said: [] };
    let rest = text.replace(LENGTHS, (whole, before, part, other, after) => {
      const kind = /^(prompt|input)/i.test(part || other) ? "prompt" : "output";
      if (found[kind] !== undefined) return whole;
      found[kind] = kvState.tokensOf((before || after).toLowerCase().replaceAll(",", ""));
      found.said.push(`${kind} of ${count(found[kind])} tokens`);
      return " ";
    });
    const first = FIRST_TOKEN.exec(rest);
    if (first) {
      found.ttft = Number(first[1]) * (/^m/i.test(first[2]) ? 1 : 1000);
      found.said.push(`first token within ${first[1]} ${/^m/i.test(first[2]) ? "ms" : "s"}`);
      rest = rest.replace(first[0], " ");
    }
    const least = (found.prompt || 0) + (found.output || 0);
    if (least > kvState.tokensOf("8k")) found.context = site.contexts.find((one) => one >= least);
    return [found, rest];
  }

  /* A unit as the claim checker writes it. */
  const unitOf = (text) =>
    /^b/i.test(text) ? "B" : text.replace(/i/i, "").toUpperCase().replace("B", /i/i.test(text) ? "iB" : "B");

  /* People with their pace, or requests in a time, and the text without them; null where a number of people stands for
     requests at once. */
  function crowdIn(text, workload) {
    const people = PEOPLE.exec(text), pace = PACE.exec(text), interval = INTERVAL.exec(text);
    const load = !people && LOAD.exec(text), often = pace || interval;
    const many = people && AT_ONCE.test(people[2]) &&
      !(/^p/i.test(people[2]) && workload.said.length); // people with a workload are no requests
    if (load) {
      const users = Number(load[1].replaceAll(",", "")) *
        PER_MINUTE[(load[2] || "sec").replace(/^s$/i, "sec").toLowerCase()];
      const lasting = DURATION.exec(text), { 0: whole } = load;
      return crowdOf(text, [load, lasting], 1, users, lasting, whole.toLowerCase().trim());
    }
    if (!people || (!often && many)) return [null, text];
    const users = Number(people[1].replaceAll(",", "")), lasting = often && DURATION.exec(text);
    const times = pace && (Number(pace[1]) || { twice: 2 }[pace[2]?.toLowerCase()] || 1);
    const each = pace
      ? times * PER_MINUTE[pace[3].toLowerCase()]
      : interval
      ? PER_MINUTE[interval[2].toLowerCase()] / Number(interval[1])
      : 0;
    const rate = each ? +each.toPrecision(3) : undefined;
    const said = rate ? `, ${rate} ${rate === 1 ? "request" : "requests"} per minute each` : "";
    return crowdOf(text, [people, often, lasting], users, rate, lasting, `${count(users)} people${said}`);
  }

  function crowdOf(text, parts, users, rate, lasting, said) {
    const latency = lasting ? Number(lasting[1] || lasting[2]) : undefined;
    const rest = parts.reduce((left, found) => (found ? left.replace(found[0], " ") : left), text);
    return [{ users, rate, latency, said: said + (latency ? `, ${latency} s per request` : "") }, rest];
  }

  /* Words that a page of its own answers: they are understood, although no setting says them. */
  function topicsIn(missed, understood) {
    const found = missed.filter((word) => TOPICS.some(([pattern]) => pattern.test(word)));
    for (const word of found) missed.splice(missed.indexOf(word), 1);
    understood.push(...found);
    return found;
  }

  /* How many adapters a text names; their number is no other word's. */
  function adaptersIn(words, missed) {
    const named = words.map((word, n) => (ADAPTERS.test(word) ? n : -1)).filter((n) => n >= 0);
    const place = named.find((n) => /^\d{1,3}$/.test(words[n - 1])) ?? named[0] ?? -1;
    const number = place > 0 && /^\d{1,3}$/.test(words[place - 1]) ? words[place - 1] : "";
    if (missed.includes(number)) missed.splice(missed.indexOf(number), 1);
    return Number(number) || 1;
  }

  /* What a start command of a server asks for: its flags are fields of the state, or change no memory, or are not read here.
     null for other commands, and for words that are none of its own, but for a GPU. */
  function fromCommand(text, site, names) {
    const quoted = /`([^`]*\s--[^`]*)`/.exec(text);
    if (quoted) {
      // A command within a sentence, whose other words may name the GPU.
      const { state } = understand(text.replace(quoted[0], " "), site, names);
      return fromCommand([quoted[1], state.gpu].filter(Boolean).join(" "), site, names);
    }
    const whole = text.replace(/\s\\(?=\s)/g, " ");
    const family = Object.keys(names.servers).find((name) => SERVERS[name].test(whole));
    if (!family) return null;
    const [before, after] = whole.split(SERVERS[family]);
    if (!/^\s*(CUDA_VISIBLE_DEVICES=\S+\s+)?$/.test(before)) return null;
    const { keys, switches, dropped, idle } = names.servers[family];
    const followed = COMMANDED[family].split(" ");
    const kvNames = Object.entries(kvKernel.words.kv_names[family] || {});
    const words = after.trim().split(/\s+/).map((word) => word.replace(/^(["'])(.*)\1$/, "$2")).reverse();
    /* What words mean that name a GPU and nothing else; null for others. */
    const gpuNamed = (said) => {
      const found = understand(said.join(" "), site, names);
      const { missed, topics = [], asks, gpus, home } = found;
      const more = Object.keys(found.state).filter((key) => !/^(gpu|tp)$/.test(key));
      return found.state.gpu && ![missed, topics, asks, gpus, home, more].some((one) => one.length)
        ? found
        : null;
    };
    const query = new URLSearchParams(), other = [], flags = [], unread = [];
    while (words.length) {
      const word = words.pop();
      if (!/^--?[a-z]/.test(word)) {
        other.push(word);
        continue;
      }
      const [, flag, written] = /^([^=]+)=?(.*)$/.exec(word), name = flag.replace(/_/g, "-");
      const isModel = /^--model(-path)?$/.test(name);
      const takes = isModel || (keys[name] && !switches.includes(name)) || idle[1].includes(name);
      const value = word.includes("=") ? written : takes ? words.pop() || "" : "1";
      const said = takes && !word.includes("=") ? `${flag} ${value}` : word;
      if (isModel) other.unshift(value);
      else if (dropped[name]?.includes(value) || idle[0].includes(name) || idle[1].includes(name)) {
        flags.push(said);
      } else if (followed.includes(keys[name]) && !(keys[name] === "context" && /\D/.test(value))) {
        const [ours] = (keys[name] === "kv" && kvNames.find(([, theirs]) => theirs === value)) || [value];
        query.set(keys[name], ours);
      } else {
        // Words that follow are its own, but for a GPU; a number alone is its value.
        const values = [];
        while (words.length && !words[words.length - 1].startsWith("-")) values.push(words.pop());
        const place = values.findIndex((_, n) =>
          (n > 0 || !/^\d+$/.test(values[0])) && gpuNamed(values.slice(n))
        );
        other.push(...values.splice(place < 0 ? values.length : place));
        unread.push([said, ...values].join(" "));
      }
    }
    const model = other.length && names.models.find((one) => one.names.includes(plainName(other[0])));
    const last = other.slice(1), gpu = last.length > 0 && gpuNamed(last);
    if (!model || gpu === null) return null;
    const typed = text.trim().split(/\s+/),
      ends = last.length && typed.slice(-last.length).join() === last.join();
    const { state, ignored } = kvState.read(site, followed, [], String(query));
    for (const one of ignored) unread.push(one);
    const engine = kvState.engineOf(site, family);
    const own = { ...engine !== site.engine.default && { engine }, ...gpu && { gpu: gpu.state.gpu } };
    const understood = [
      model.name,
      ...engine === site.engine.default ? [] : [site.engines.find(({ name }) => name === engine).label],
      ...Array.from(query).filter(([key]) => key in state).map(([key, value]) => `${key} ${value}`),
      ...gpu ? gpu.understood : [],
    ];
    if (flags.length) understood.push(`without effect on memory: ${flags.join(", ")}`);
    return {
      state: { model: model.id, tp: 1, ...own, ...state },
      understood,
      missed: [],
      home: [],
      gpus: [],
      asks: [],
      engines: [],
      unread,
      start: ends ? typed.slice(0, -last.length).join(" ") : text.trim(),
    };
  }
  /* Fields of the state that a command sets. SGLang has numbers for its default memory and step only. */
  const COMMANDED = {
    vllm: "tp pp dp ep dcp weights kv context share batched seqs eager",
    sglang: "tp pp dcp weights kv context",
  };

  /* Devices of all ranks and stages together, as "8x b200 dp8" says them; "dp" alone is a rank on each of them. */
  function divided(state, stated, devices, understood, missed) {
    if (state.dp === "all") {
      const total = devices || state.tp;
      const own = stated === undefined ? 1 : stated;
      if (total > 1 && total % (own * (state.pp || 1)) === 0) {
        state.dp = total / own / (state.pp || 1);
        state.tp = own;
        understood[understood.indexOf("data parallel")] = `data parallel ${state.dp}`;
      } else {
        delete state.dp;
        missed.push("dp");
        understood.splice(understood.indexOf("data parallel"), 1);
      }
      return;
    }
    const others = (state.dp || 1) * (state.pp || 1);
    if (stated === undefined && state.tp % others === 0) state.tp /= others;
    // "8x h200 tp 4": two numbers that do not agree.
    if (stated !== undefined && devices && devices !== stated * others) missed.push(`${devices}x`);
  }

  const TWO_BITS = /\b(\d{1,2}) (or|and|vs\.?|versus|against) (?=\d{1,2}[ -]?bits?\b)/gi; // "4 or 8 bit"
  const BITS = /\b(\d{1,2})[ -]?bits?\b/gi;
  const CACHE = "(bf16|fp16|16[- ]?bits?|fp8|8[- ]?bits?)";
  const OF_CACHE = [
    `\\b${CACHE}(?: kv| cache)*,? ?(?:and|or|vs\\.?|versus|against|compared (?:to|with)) (?:in |with |as )?${CACHE}`,
    `\\b(?:in|as|with|using) ${CACHE}`,
  ].map((pattern) => new RegExp(`${pattern}(?! weights)\\b`, "i"));

  /* Formats of the cache in a question about its size: "KV cache in 16 bits and in FP8"; null where it has none. */
  function cacheFormats(text) {
    const place = text.search(/\b(kv|cache)\b/i);
    if (place < 0 || /\b(weights?|checkpoints?)\b/i.test(text)) return null;
    const found = OF_CACHE.map((one) => one.exec(text)).find(Boolean);
    if (!found || (found.index < place && !/ (or|vs\.?|versus|against|compared) /i.test(found[0]))) {
      return null;
    }
    const said = found.slice(1).filter(Boolean).map((word) => word.replace(BITS, "$1-bit").toUpperCase());
    const kvs = said.map((word) => (/^(FP8|8)/.test(word) ? "fp8" : "bf16"));
    return new Set(kvs).size === kvs.length ? { 0: found[0], kvs, said } : null;
  }

  /* "kv cache fp8 vs bf16": the answer with the smaller format, and what it saves. */
  function formatsApart(cached, pair, state, understood) {
    if (cached && !state.kv) {
      const small = cached.kvs.indexOf("fp8"), wide = cached.kvs.indexOf("bf16");
      state.kv = cached.kvs[Math.max(small, 0)];
      const words = cached.said.map((word) => word.replace("-BIT", "-bit"));
      understood.push(
        small >= 0 && wide >= 0
          ? `KV cache in ${words[small]}, compared with ${words[wide]}`
          : `KV cache in ${words[0]}`,
      );
      return small >= 0 && wide >= 0;
    }
    const wide = pair?.filter((word) => FORMATS[word][1] === "bf16");
    if (wide?.length !== 1 || pair.length > 2) return false;
    const small = pair.find((word) => word !== wide[0]);
    state.weights = FORMATS[small][1];
    understood.push(`weights in ${small.toUpperCase()}, compared with ${wide[0].toUpperCase()}`);
    return true;
  }

  const EITHER = "(?: weights)?,? (?:and|vs\\.?|versus|or|against|compared (?:to|with)) (?:in )?";
  const SIZES_APART = new RegExp(
    `\\b(?:tp|tensor[- ]parallel(?:ism)?)[= ]?(\\d+)${EITHER}(?:(?:tp|tensor[- ]parallel(?:ism)?)[= ]?)?(\\d+)\\b`,
    "i",
  );
  const FORMAT = `\\b(?:${Object.keys(FORMATS).join("|")})\\b`;
  const ANY_FORMAT = new RegExp(FORMAT, "g");
  const FORMATS_APART = new RegExp(
    `${FORMAT}(?:(?:, ?(?:and |or )?|${EITHER})${FORMAT})+(?! (?:kv|cache))`,
    "i",
  );
  const SETTINGS = { seqs: "seqs", batched: "batched", utilization: "share", share: "share" };
  const SETTING_APART = new RegExp(
    `-*\\b(?:max[-_ ]num[-_ ](seqs|batched)(?:[-_ ]tokens)?|(?:gpu[-_ ])?memory[-_ ](utilization|share))[= ]([\\d.]+)${EITHER}([\\d.]+\\b)`,
    "i",
  );

  /* "max-num-seqs 256 or 512": the setting and its two values; null where there is none. */
  function settingApart(text) {
    const found = SETTING_APART.exec(text);
    if (!found) return null;
    const name = SETTINGS[(found[1] || found[2]).toLowerCase()];
    return { 0: found[0], forms: found.slice(3, 5).map((value) => ({ [name]: Number(value) })) };
  }
  const NUMBER = `(?:\\d{1,2}|one|${Object.keys(NUMBERS).join("|")})(?: ?[x×])?`;
  const COUNTS_APART = new RegExp(
    `(?<![\\d.\\w-])(${NUMBER}(?:(?:, ?| (?:and|or|vs\\.?|versus|against|to) )(?:and |or )?${NUMBER})+) (\\S+)(?: (\\S+))?(?: (\\S+))?`,
    "i",
  );

  /* "tp 2 or 4", "1, 2 and 4 L40S": numbers of GPUs of one case, and the words that say them; null where there are none. */
  function sizesApart(text, { gpus }) {
    const tensors = SIZES_APART.exec(text);
    if (tensors) return Object.assign(tensors.slice(1, 3).map(Number), { said: tensors[0] });
    const [, said, ...next] = COUNTS_APART.exec(text) || [];
    if (!said) return null;
    const plain = next.map((_, n) =>
      plainName(next.slice(0, n + 1).join("").replace(/[?!.,;:]+$/, "")).replace(/([a-z0-9]{3})s$/, "$1")
    );
    if (!plain.some((name) => /^(gpu|card)$/.test(name) || gpus.some((gpu) => gpu.names.includes(name)))) {
      return null;
    }
    const numbers = said.toLowerCase().match(new RegExp(NUMBER.replace("(?: ?[x×])?", ""), "g")).map((word) =>
      Number(word) || NUMBERS[word] || 1
    );
    return Object.assign([...new Set(numbers)], { said });
  }

  /* "nvfp4 vs fp8", "tp 2 or 4": one case in two forms, each as a change of the state. */
  function formsApart(pair, sizes, setting, state, understood) {
    if (!(sizes || pair || setting) || !state.model || state.pp || state.dp || state.ep) return [];
    if (setting) {
      understood.push(`${setting[0].toLowerCase()}, compared`);
      return setting.forms;
    }
    if (sizes) {
      delete state.tp;
      understood.splice(
        understood.indexOf(`tensor parallel ${sizes[0]}`),
        1,
        `${sizes.slice(0, -1).join(", ")} and ${sizes.at(-1)} GPUs, compared`,
      );
      return sizes.map((tp) => ({ tp }));
    }
    understood.push(`weights in ${pair.map((one) => one.toUpperCase()).join(" and ")}, compared`);
    return pair.map((word) => ({ weights: FORMATS[word][1] }));
  }

  /* "one h200 node" has as many GPUs as a usual server. */
  const ofServers = ({ gpus }, text) =>
    text.replace(
      /(?<![\w.])(one|an?|single|two|three|four|\d{1,2})\s+(\S+(?:\s\S+)?)\s+(?:nodes?|servers?|box(?:es)?)\b/gi,
      (whole, number, name) => {
        const many = Number(number) || NUMBERS[number.toLowerCase()] || 1;
        if (!gpus.some((gpu) => gpu.names.includes(plainName(name)))) return whole;
        return `${many > 1 ? `${many} servers ` : ""}${IN_SERVER}x ${name}`;
      },
    );

  /* "2x p5.48xlarge" are two servers with the accelerators of that machine type. */
  const ofClouds = ({ clouds, instances }, text) =>
    text.replace(clouds, (_, before = "", number, name) => {
      const [gpu, devices] = instances.get(plainName(name).replace(/[.]/g, ""));
      const many = Number(number) || NUMBERS[number?.toLowerCase()] || 1;
      return `${before}${many > 1 ? `${many} servers ` : ""}${devices}x ${gpu} `;
    });

  /* "llama 70b 4x h100 0.95": a number below 1 that names nothing is the memory share. */
  function bareShare(state, understood, missed) {
    const place = missed.findIndex((word) => /^0?\.[5-9]\d?$/.test(word));
    if (place < 0 || state.share !== undefined || !state.model) return;
    const [word] = missed.splice(place, 1);
    state.share = Number(word);
    understood.push(`memory share ${state.share}`);
  }

  /* "two servers of 8 h200": a pipeline stage on each server, unless the question says another layout. */
  function acrossServers(state, understood) {
    const { nodes, tp = IN_SERVER, pp, dp, ep } = state;
    delete state.nodes;
    if (!nodes || pp || dp || ep) return;
    if (nodes === 1) {
      if (!state.tp) understood.push(`${tp} GPUs in it`);
      state.tp = tp;
      return;
    }
    const whole = tp > IN_SERVER && tp % nodes === 0 ? tp / nodes : tp;
    Object.assign(state, { tp: whole, pp: nodes });
    understood.push(`${whole} GPUs in each, one pipeline stage per server`);
  }

  /* Words with one wrong letter are those of a model's name, where its number follows: "lama 3.3", "deepsek r1". A
     word of the language is often one letter from a name, and stays what it is. */
  function spelled({ models }, words) {
    const known = new Set(
      models.flatMap(({ own }) => own).filter((word) => /^[a-z]{4,}$/.test(word) && !KINDS.has(word)),
    );
    const follows = (one, next) =>
      models.filter(({ own }) => own.includes(one) && own.some((word) => word.startsWith(next))).length;
    return words.map((word, n) => {
      const next = plainName(words[n + 1] || "");
      if (!/^[a-z]{4,}$/.test(word) || !/\d\.\d|\db|[a-z]\d/.test(next) || known.has(word)) return word;
      const near = Array.from(known).filter((one) => oneApart(word, one) && follows(one, next));
      return near.sort((a, b) => follows(b, next) - follows(a, next))[0] || word;
    });
  }

  /* Whether two words differ by one letter that is missing, added, wrong, or changes places with the next. */
  function oneApart(a, b) {
    if (Math.abs(a.length - b.length) > 1) return false;
    let n = 0;
    while (n < a.length && a[n] === b[n]) n += 1;
    const rests = [[1, 1], [1, 0], [0, 1]].map(([x, y]) => a.slice(n + x) === b.slice(n + y));
    const turned = a[n] === b[n + 1] && a[n + 1] === b[n] && a.slice(n + 2) === b.slice(n + 2);
    return n > 0 && (rests.some(Boolean) || turned);
  }

  /* The machine at home that a phrase names; undefined where it fits several. */
  function machineNamed(machines, phrase) {
    const plain = plainName(phrase);
    const words = phrase.split(" ").map(plainName).filter(Boolean);
    if (AT_HOME.test(phrase)) return undefined;
    const sizes = words.filter((word) => SIZED.test(word));
    const computer = plain.replace(/\d+gb/g, "");
    const exact = machines.filter(({ names, base, computers, plain: all }) =>
      names.includes(plain) || base === plain ||
      (computers.includes(computer) && sizes.every((word) => all.includes(word)))
    );
    // A size of memory, or a word such as "mac", fits too many.
    const telling = words.some((word) => /\d/.test(word) && !/^\d+gb$/.test(word));
    const every = telling ? machines.filter((one) => words.every((word) => one.plain.includes(word))) : [];
    const found = exact.length ? exact : every;
    return found.length === 1 ? found[0] : undefined;
  }

  const BETWEEN = /^(and|or|vs|versus|to|with|against|than)$/;

  /* "vllm 0.25", "sglang": an engine of the site; "vllm 0.25 vs 0.33" are two. A release without numbers here has the
     nearest releases next to it. */
  function engineIn(site, words, state, understood, engines, unpublished, releases) {
    const rest = [];
    const isRelease = (word = "", next = "") => /^\d+\.\d+(\.\d+)?$/.test(word) && !SECONDS.test(next);
    let family = "";
    for (let n = 0; n < words.length; n += 1) {
      const again = family && isRelease(words[n], words[n + 1]) &&
        (isRelease(words[n - 1]) || BETWEEN.test(words[n - 1]) ||
          (/^(in|of)$/.test(words[n - 1]) && BETWEEN.test(words[n - 2])));
      const [own, stated = again || !isRelease(words[n + 1], words[n + 2]) ? undefined : words[n + 1]] = again
        ? [family, words[n]]
        : words[n].split("@");
      const name = kvState.engineOf(site, stated ? `${own}@${stated}` : own);
      const kin = /^[a-z]/.test(own)
        ? site.engines.filter((one) => one.family === own || one.name === own)
        : [];
      if (!kin.length || (!name && !isRelease(stated))) {
        rest.push(words[n]);
        continue;
      }
      family = kin[0].family;
      if (stated === words[n + 1]) n += 1;
      releases.push(stated ? `${own}@${stated}` : own);
      if (name) {
        const engine = site.engines.find((one) => one.name === name);
        if (name !== site.engine.default) state.engine = name;
        engines.push(name);
        understood.push(engine.label);
        continue;
      }
      const later = kin.filter(({ versions }) => versions && kvState.isBefore(stated, versions[0]));
      const near = [later.at(-1), kin[later.length]].filter(Boolean);
      unpublished.push({
        said: `${own} ${stated}`,
        label: `${kin[0].label.split(" ")[0]} ${stated}`,
        near,
        older: later.length > 0,
      });
    }
    return rest;
  }

  const SIZED = /^\d+gb$/;

  /* The longest run of words that is a name of an accelerator. */
  function gpuIn({ gpus, models, machines }, asked, state, understood, devices, home) {
    // "with 256gb", "and 256gb": a size of memory that follows is the accelerator's.
    const words = asked.filter((word, n) =>
      !(/^(with|and|has|having)$/.test(word) && SIZED.test(asked[n + 1]))
    );
    for (let size = Math.min(5, words.length); size >= 1; size -= 1) {
      for (let n = 0; n + size <= words.length; n += 1) {
        const phrase = plainName(words.slice(n, n + size).join(" "));
        // "a 16 GB card" is no A16.
        if (size > 1 && ONE.test(words[n]) && /^\d/.test(words[n + 1])) continue;
        if (phrase.length < 2 || (/^\d+$/.test(phrase) && phrase.length < 4)) continue;
        const one = phrase.replace(/([a-z0-9]{3})s$/, "$1"); // "two h100s"
        let found = gpus.find((gpu) => gpu.names.includes(phrase)) ||
          gpus.find((gpu) => gpu.names.includes(one));
        const called = (name) =>
          size > 1
            ? name === phrase
            : /^\d{4}(ti)?$/.test(phrase) && name.replace(/^(rtx|gtx|rx)/, "") === phrase;
        const other = !found && machines.find(({ base, names }) => [base, ...names].some(called));
        if (other) {
          const last = n + size + (/^\d+gb$/.test(words[n + size] || "") ? 1 : 0);
          home.push(words.slice(n, last).join(" "));
          return [...words.slice(0, n), ...words.slice(last)];
        }
        if (!found) continue;
        const before = words.slice(0, n), after = words.slice(n + size);
        const memory = /\d+gb/.exec(plainName(found.name))?.[0] || plainName(found.stored || "");
        if (memory && !SIZED.test(after[0]) && SIZED.test(before.at(-1))) after.unshift(before.pop());
        if (memory && SIZED.test(after[0]) && after[0] !== memory) {
          // The same of another size: among the accelerators, or among the machines people have at home.
          const other = gpus.find(({ plain }) => plain.includes(phrase) && plain.includes(after[0]));
          const series = found.id.replace(new RegExp(`-${parseInt(memory, 10)}$`), "");
          const sizes = new RegExp(`^${series}-\\d+(gb)?$`);
          const sibling = machines.find(({ id, base, plain }) =>
            plain.includes(after[0]) && (base.endsWith(phrase) || sizes.test(id))
          );
          if (other) after.shift();
          else if (sibling || /^m\d/.test(phrase)) {
            const said = `${words.slice(n, n + size).join(" ")} ${after.shift()}`;
            home.push(sibling ? sibling.name.toLowerCase() : said);
            return [...before, ...after];
          }
          found = other || found;
        }
        state.gpu = found.id;
        const number = /^[1-9]\d?$/;
        if (!devices && isSize(models, before)) before.push(`${before.pop()}b`);
        const counts = number.test(before.at(-1)) && !inAName(models, before.at(-2), before.at(-1));
        if (!devices && counts) devices = Number(before.pop());
        if (!devices && number.test(after[0])) devices = Number(after.shift());
        if (/^\d+gb$/.test(after[0]) && (!memory || memory === after[0])) after.shift();
        // "an H100 at TP 4" counts nothing.
        if (!devices && ONE.test(before.at(-1)) && !(state.tp > 1 && /^an?$/.test(before.at(-1)))) {
          devices = 1;
        }
        if (devices) {
          state.tp ??= devices;
          home.devices = devices;
        }
        understood.push(
          devices > 1 ? `${devices} × ${found.name}` : devices ? `one ${found.name}` : found.name,
        );
        return [...before, ...after];
      }
    }
    return asked;
  }

  /* Accelerators after the first one: "h100 vs mi300x". */
  function furtherGpus(names, words, first, understood, gpus) {
    let rest = words;
    for (;;) {
      const state = {}, said = [], home = [];
      const after = gpuIn(names, rest, state, said, null, home);
      if (!state.gpu || home.length) return rest;
      rest = after;
      if ([first, ...gpus].includes(state.gpu) && !state.tp) continue; // named again
      gpus.push(state.gpu);
      understood.push(`and ${said.join("")}`);
    }
  }

  /* The accelerators of a comparison with the number next to each name: [[id, number or undefined]]. */
  function countsOf(names, words) {
    const found = [];
    let rest = words.map((word) => word.replace(/^(\d{1,3})x$/, "$1"));
    for (;;) {
      const state = {}, home = [];
      rest = gpuIn(names, rest, state, [], null, home);
      if (!state.gpu || home.length) return found;
      if (state.tp || !found.some(([id]) => id === state.gpu)) found.push([state.gpu, state.tp]);
    }
  }

  /* Unequal accelerators of one machine, as "2x 3090 + 3060": {id, said, rest}; null where no plus sign stands between
     accelerators, or between two at least where other words may be added too. */
  function machineIn(names, words, others = false) {
    if (!words.includes("+")) return null;
    const parts = [[]];
    for (const word of words) {
      if (word === "+") parts.push([]);
      else parts.at(-1).push(word);
    }
    const ids = [], said = [], rest = [];
    for (const part of parts) {
      const number = part.findIndex((word) => /^\d{1,2}x$/.test(word));
      const times = number < 0 ? null : parseInt(part[number], 10);
      const state = {}, home = [];
      const left = gpuIn(names, part.filter((_, n) => n !== number), state, said, times, home);
      if (home.length || (!state.gpu && !others)) return null;
      const count = times || state.tp || 1;
      if (state.gpu) ids.push(count > 1 ? `${state.gpu}*${count}` : state.gpu);
      rest.push(...left);
    }
    if (ids.length < 2) return null;
    return { id: ids.join("+"), said: said.join(" + ").replaceAll("one ", ""), rest };
  }

  /* Whether a number ends a name: the 4 of "mistral small 4" is no number of devices. */
  const inAName = (models, word, number) =>
    word !== undefined &&
    models.some(({ words }) => words.some((one, n) => one === plainName(word) && words[n + 1] === number));

  /* Whether two words are one of a name: the "code llama" of CodeLlama. */
  const isOneName = (models, joined) => models.some(({ words }) => words.includes(plainName(joined)));

  /* Whether the last of some words is a size that was written without its letter: the 70 of "llama 3.3 70 h100". A
     name that has a size already leaves the number to the devices. */
  function isSize(models, words) {
    const size = words.at(-1);
    if (!/^\d{1,3}$/.test(size) || BEFORE_DEVICES.test(words.at(-2))) return false;
    const named = words.slice(0, -1).map(plainName).filter((word) =>
      !FILLERS.has(word) && models.some((model) => hit(model, word))
    );
    if (!named.some((word) => /[a-z]{2}/.test(word)) || named.some((word) => SIZE.test(word))) {
      return false;
    }
    return models.some((model) =>
      model.words.includes(`${size}b`) && named.every((word) => hit(model, word))
    );
  }

  /* Cards that have no numbers here, such as "rtx 4060 8gb": the page of machines has them. */
  function cardsIn(models, words, home) {
    // The m2 of "minimax m2" is of a model's name.
    const ofName = (before, word) =>
      models.some(({ own }) => own.some((one, n) => one === before && own[n + 1]?.startsWith(word)));
    const chip = words.findIndex((word, n) =>
      /^m[1-9]$/.test(word) && !ofName(plainName(words[n - 1] || ""), word)
    );
    const card = words.findIndex((word, n) => CARD.test(word) && /^[a-z]?\d{3,4}/.test(words[n + 1] || ""));
    const first = chip < 0 ? card : chip;
    if (first < 0) return words;
    let last = first + (first === chip ? 1 : 2);
    while (/^(ti|super|xt|xtx|gre|laptop|mobile|pro|max|ultra|\d+gb)$/.test(words[last] || "")) last += 1;
    home.push(words.slice(first, last).join(" "));
    return [...words.slice(0, first), ...words.slice(last)];
  }

  /* A size of memory alone, such as "48gb": the accelerator with it that most clouds rent out. */
  function memoryIn(site, words, state, understood, home) {
    const place = words.findIndex((word) => /^\d+gb$/.test(word));
    if (place < 0) return words;
    const bytes = parseInt(words[place], 10) * 2 ** 30;
    const rest = words.filter((_, n) => n !== place);
    if (home.length) {
      home.push(words[place]);
      return rest;
    }
    // A process can use a tenth less than the label says, at most.
    const found =
      site.gpus.filter((gpu) => gpu.usable <= bytes && gpu.usable >= bytes * 0.9 && gpu.rental === 2)
        .sort((a, b) => b.providers - a.providers)[0];
    if (found) {
      state.gpu = found.id;
      state.tp ??= 1;
      understood.push(`${words[place].toUpperCase().replace("GB", " GB")}, as ${found.name} has`);
    } else home.push(words[place]);
    return rest;
  }

  /* Context and formats. */
  function sizesIn(site, models, words, state, understood) {
    return words.filter((word, n) => {
      if (/^(\d{4}|\d+m)$/.test(word) && inAName(models, words[n - 1], word)) return true; // "mistral large 2411", "smollm2 135m"
      const length = /^\d+(\.\d+)?[km]$/.test(word) || /^\d{4,7}$/.test(word.replace(/,/g, ""))
        ? kvState.tokensOf(word)
        : undefined;
      if (length && state.context === undefined) {
        state.context = length;
        understood.push(`${tokens(length)} tokens`);
        return false;
      }
      const format = FORMATS[word.replace(/[-_]/g, "")];
      const here = format &&
        (/fp4/.test(format[1]) ? site.weight_formats.some((one) => one.name === format[1]) : true);
      if (here && state[format[0]] === undefined) {
        state[format[0]] = format[1];
        understood.push(`${/bit$/.test(word) ? word.replace("bit", "-bit") : word.toUpperCase()} weights`);
        return false;
      }
      return true;
    });
  }

  const COPIES = /^(fp8|awq|gptq|bnb|gguf|nvfp4|mxfp[48]|int[48]|w\d+a\d+|\d-?bit)$/; // in names of quantized copies

  /* The model that has most of the words; among equals the one that has them whole ("glm-5" is no GLM-5.2), then one that is no
     quantized copy of another (which the words would name), the one whose own name has them ("llama 2 7b" is not Code Llama 7B, which sqlcoder-7b-2 has the shape of), the commonly used, the fewest
     words, the newest, the shortest name. */
  function modelIn(models, words, state, understood, missed) {
    const whole = wholeName(models, words);
    const asked = words.filter((word) => !FILLERS.has(word));
    const telling = asked.find((word) => namesOne(models, word));
    /** @type {any} */
    let best = null;
    for (const model of models) {
      const named = whole?.model === model ? whole.words : [];
      const hits = asked.filter((word, n) =>
        named.includes(word) || hit(model, plainName(word)) ||
        (n > 0 && /^\d{1,3}$/.test(word) && model.words.includes(`${word}b`)) ||
        (n > 0 && /^\d/.test(word) && model.words.includes(plainName(asked[n - 1] + word)))
      );
      const names = (word) =>
        word === telling || named.includes(word) ||
        (KINDS.has(word)
          ? begins(model, word, asked)
          : /[a-z]{2}/.test(word) && isOwn(model, plainName(word)));
      if (!hits.some(names)) continue;
      const length = model.name.split(/[\s-]/).length;
      const exact = hits.filter((word) => isWhole(model, plainName(word))).length;
      const own = model.name.toLowerCase().split(/[\s-]+/);
      const rank = [
        hits.length,
        exact,
        -own.filter((word) => COPIES.test(word) && !asked.includes(word)).length,
        hits.filter((word) => own.includes(word)).length,
        model.common ? 1 : 0,
        named.length,
        -length,
        model.release || "",
        -model.name.length,
      ];
      if (!best || above(rank, best.rank)) best = { model, hits, rank };
    }
    if (best) {
      state.model = best.model.id;
      understood.unshift(best.model.name);
    }
    const wrong = asked.filter((word) => !best || !best.hits.includes(word));
    missed.push(...wrong);
    // "mistral large 3": a number right after the words of a name is another release of it.
    const at = asked.findIndex((word, n) =>
      n > 0 && wrong.includes(word) && RELEASE.test(word) && !SECONDS.test(asked[n + 1]) &&
      best?.hits.includes(asked[n - 1])
    );
    const unlisted = at < 0
      ? null
      : asked.slice(asked.findIndex((word) => best.hits.includes(word)), at + 1).join(" ");
    return best ? { unlisted, hits: best.hits, others: otherReleases(models, best) } : {};
  }

  /* The words that are a whole name of a model and follow each other, the longest run of them: {model, words}. Of one word
     the question has no other. */
  function wholeName(models, words) {
    for (let size = Math.min(6, words.length); size >= 1; size -= 1) {
      for (let n = 0; n + size <= words.length; n += 1) {
        const some = words.slice(n, n + size), name = plainName(some.join(""));
        if (
          FILLERS.has(some[0]) || (size === 1 && words.some((word) => word !== some[0] && !FILLERS.has(word)))
        ) continue;
        const model = name.length > 3 && models.find(({ names }) => names.includes(name));
        if (model) return { model, words: some };
      }
    }
    return null;
  }

  /* Models between which the words of a choice stand, each named by its own words, or by the last ones with those before
     its number: "glm 5 vs glm 5.2", "qwen3 8b or 14b". Ids of those after the first; null where a side names none. */
  function sidesIn(models, words, first, understood, missed) {
    const sides = [[]];
    for (const word of words) {
      if (/^(vs|versus|or|and|against)$/.test(word)) sides.push([]);
      else if (!FILLERS.has(word)) sides.at(-1).push(word);
    }
    const named = sides.filter((side) => side.length);
    if (named.length < 2 || named.some((side) => side.every((word) => FORMATS[word]))) return null;
    const found = [];
    let lead = [];
    for (const side of named) {
      const tried = [side, [...lead, ...side]].map((list) => {
        const state = {}, said = [], strange = [];
        const { hits } = modelIn(models, list, state, said, strange);
        return { id: state.model, name: said[0], strange, hits };
      });
      const one = tried.find(({ id, strange }) => id && !strange.length);
      if (!one || found.some(({ id }) => id === one.id)) return null;
      found.push(one);
      const family = one.hits.findIndex((word) => /^v?\d/.test(word));
      lead = family < 0 ? one.hits.slice(0, 1) : one.hits.slice(0, family);
    }
    first.model = found[0].id;
    missed.splice(0, missed.length, ...missed.filter((word) => !words.includes(word)));
    understood.splice(0, understood[0] ? 1 : 0, found[0].name);
    understood.push(...found.slice(1).map(({ name }) => `and ${name}`));
    return found.slice(1).map(({ id }) => id);
  }

  /* Formats that stand with the names of a comparison's models, by id: a format of one side is not that of the other. */
  function formatsOf(models, text, ids, state, understood, missed) {
    const parts = text.split(/\b(?:vs\.?|versus|or|and|against|with|compared (?:to|with))(?=\s)/i);
    const names = parts.map((part) => part.split(/,|\s(?:on|with|at|for|using)\s/i)[0]);
    const found = Object.fromEntries(names.flatMap((part) => {
      const words = wordsOf(part), format = words.find((word) => FORMATS[word.replace(/[-_]/g, "")]);
      const own = {};
      modelIn(models, words.filter((word) => word !== format), own, [], []);
      const id = ids.find((one) => one === own.model);
      return format && id ? [[id, format]] : [];
    }));
    const sides = Object.keys(found);
    const value = (id) => FORMATS[found[id].replace(/[-_]/g, "")][1];
    if (!sides.length || (sides.length === ids.length && new Set(sides.map(value)).size === 1)) return {};
    const none = (list) =>
      list.splice(0, list.length, ...list.filter((word) => !Object.values(found).includes(word)));
    none(missed);
    const left = understood.filter((said) => !said.endsWith(" weights"));
    const said = sides.map((id) =>
      `${found[id].toUpperCase()} weights of ${models.find((one) => one.id === id).name}`
    );
    understood.splice(0, understood.length, ...left, ...said);
    delete state.weights;
    return Object.fromEntries(sides.map((id) => [id, value(id)]));
  }

  /* "a 32B model": the one of this size that is commonly used, else the newest that is no copy of another. */
  function ofSize(models, missed, state, understood) {
    const place = missed.findIndex((word) => SIZE.test(word));
    const copied = ({ name }) => name.toLowerCase().split(/[\s-]+/).some((word) => COPIES.test(word));
    const able = models.filter((one) => one.words.includes(missed[place]) && !copied(one));
    const found = able.find(({ common }) => common) || able[0];
    if (!found) return;
    state.model = found.id;
    understood.unshift(`${found.name}, taken as a model of ${missed[place].toUpperCase()}`);
    missed.splice(place, 1);
  }

  /* Further models that the words name which the first one left: "deepseek-v3.2 or glm-5.2". */
  function modelsIn(models, missed, first, understood) {
    const found = [];
    for (;;) {
      const whole = wholeName(models, missed); // "glm 5"
      if (!whole || [first.model, ...found].includes(whole.model.id)) break;
      found.push(whole.model.id);
      missed.splice(
        missed.findIndex((_, n) => whole.words.every((word, m) => missed[n + m] === word)),
        whole.words.length,
      );
      understood.push(`and ${whole.model.name}`);
    }
    const left = missed.filter((word) => /[a-z]{2}/.test(word) && /\d/.test(word) && !FORMATS[word]);
    for (const word of left) {
      const state = {}, said = [], strange = [];
      modelIn(models, [word], state, said, strange);
      if (!state.model || strange.length || [first.model, ...found].includes(state.model)) continue;
      found.push(state.model);
      missed.splice(missed.indexOf(word), 1);
      understood.push(`and ${said[0]}`);
    }
    return found;
  }

  /* Releases of the same name that the words fit too; none where the words say the release. */
  function otherReleases(models, { model, hits }) {
    const parts = ({ name }) => name.toLowerCase().split(/[\s-]+/);
    const own = parts(model).filter((word) => RELEASE_WORD.test(word) && /\d/.test(word));
    if (!own.length || own.some((word) => hits.join("-").includes(word))) return [];
    const sized = parts(model).some((word) => SIZE.test(word));
    const bare = (one) =>
      parts(one).filter((word) => !RELEASE_WORD.test(word) && (sized || !SIZE.test(word)));
    return models.filter((one) => one !== model && bare(one).join() === bare(model).join());
  }

  /* Whether a size alone names a model, as "405b" does: all that have it are forms of one. */
  function namesOne(models, word) {
    if (!/^\d+(\.\d+)?b$/.test(word)) return false;
    const own = ({ name }) => plainName(name.toLowerCase().split(word)[0].replace(/\bmeta-/, ""));
    return new Set(models.filter((model) => model.words.includes(word)).map(own)).size === 1;
  }

  /* "qwen 72b awq" is a checkpoint of that name, where there is one: its layers may be padded, so that it can be split. */
  function checkpointOf(models, words, state, understood) {
    const quantizer = words.find((word) => word === "awq" || word === "gptq");
    const base = models.find((one) => one.id === state.model);
    if (!quantizer || !base || state.weights !== "int4") return;
    const own = (id) => plainName(id.split("--").pop());
    const ending = new RegExp(`^(meta)?${quantizer}(int4|4bit)?$`);
    const found = models.find((one) =>
      own(one.id).includes(own(base.id)) && ending.test(own(one.id).replace(own(base.id), ""))
    );
    if (!found) return;
    state.model = found.id;
    delete state.weights;
    understood[0] = found.name;
    understood.splice(understood.indexOf(`${quantizer.toUpperCase()} weights`), 1);
  }

  /* "gpt-oss 120b mxfp4": the format that the release has, which is the answer's own. */
  function storedFormat(models, state, understood, missed) {
    const stored = models.find(({ id }) => id === state.model)?.stored;
    const place = missed.findIndex((word) => FORMATS[word] && stored?.startsWith(FORMATS[word][1]));
    if (place < 0 || state.weights) return;
    understood.push(`${missed[place].toUpperCase()} weights, as released`);
    missed.splice(place, 1);
  }

  /* Whether a word is of a name: one of its words, one up to its number ("qwen" of Qwen3, "3" of 3.1), or several that
     follow each other. A word of letters alone is no part of a longer one: "all" is not ALLaM. */
  const hit = (model, word) => word && (of(model.words, word) || (/\d/.test(word) && isPart(model, word)));
  const isOwn = (model, word) => of(model.own, word) || (/\d/.test(word) && isPart(model, word));
  const isPart = ({ words, plain }, word) =>
    (word.length > 2 && words.some((one) => one.startsWith(word))) ||
    (word.length > 3 && plain.includes(word));
  const of = (words, word) =>
    words.some((one, n) =>
      one === word || (word.length > 1 && one.startsWith(word) && /^[\d.]/.test(one.slice(word.length))) ||
      (one.length < word.length && word.startsWith(one) && isRun(words.slice(n + 1), word.slice(one.length)))
    );
  const isRun = (words, word) =>
    words.length > 0 && words[0] !== "" &&
    (words[0] === word || (word.startsWith(words[0]) && isRun(words.slice(1), word.slice(words[0].length))));

  /* Whether a word of many names is the first of this one, and its next word stands there too. */
  const begins = ({ own }, word, asked) =>
    own[0] === word && own[1] && plainName(asked[asked.indexOf(word) + 1] || "").startsWith(own[1]);

  /* Whether a word is one of a name, or some that follow each other. */
  const isWhole = ({ words, names }, word) =>
    names.includes(word) || words.some((one, n) => one === word || one + words[n + 1] === word);

  const above = (a, b) => {
    const n = a.findIndex((each, place) => each !== b[place]);
    return a[n] > b[n];
  };

  const wordsIn = (texts) => texts.flatMap((text) => text.toLowerCase().split(/[\s/_-]+/)).map(plainName);

  /* Names as the search wants them: every alias on its own, and the words of a model's name. */
  function prepared(file) {
    const servers = Object.entries(file.servers || {}).map((
      [family, own],
    ) => [family, { ...own, idle: Object.values(own.idle).map((text) => text.split(" ")) }]);
    const alone = ([id, name, maker, release, common, aliases, stored]) => ({
      id,
      name,
      maker,
      release,
      common: Boolean(common),
      stored,
      names: [id, name, ...aliases].map(plainName),
      words: wordsIn([name, id, ...aliases]),
      own: wordsIn([name, id, ...aliases].map((text) => text.replace(/^.*?(--|\/)/, ""))), // without who published it
      plain: plainName(name + id),
    });
    const base = (machine) => ({
      ...machine,
      base: plainName(machine.name.replace(/\s*\d+ ?gb.{0,}/i, "")),
      plain: plainName([machine.plain, ...machine.stored].join("")),
      computers: machine.stored.map(plainName),
    });
    const clouds = Object.entries(file.instances || {});
    const spelled = clouds.map(([name]) => name.split(/[\s_.-]+/).join("[\\s_.-]*"));
    return {
      instances: new Map(clouds.map(([name, own]) => [plainName(name).replace(/[.]/g, ""), own])),
      clouds: new RegExp(
        `(^|[^\\w.-])(?:(\\d{1,2}|one|two|three|four|eight)\\s*[x×]?\\s+)?(?:standard[_ ]|ml[.])?(${
          spelled.sort((a, b) => b.length - a.length).join("|") || "$^"
        })(?![\\w-])`,
        "gi",
      ),
      models: file.models.map(alone),
      gpus: file.gpus.map(alone),
      machines: (file.machines || []).map(alone).map(base),
      servers: Object.fromEntries(servers),
    };
  }

  /* --- the way to an answer ---------------------------------------------------------------------------------- */

  /* Where a text is answered, if not by this page's state: {said, links: [[text, address]], command}. null where the
     answer of the state is the answer of the text, but for words that change nothing. */
  function wayTo(text, found, site, names) {
    const { state, home, machine, missed, asks, gpus, engines, unlisted, understood, topics = [] } = found;
    const { unpublished = [], workload, claim, atMost, also = [] } = found;
    if (found.log) {
      return {
        said: "The page for logs reads it in your browser and explains its numbers.",
        links: [
          LOG_NAMED.test(text)
            ? ["read a start-up log", "log/"]
            : ["read this message as a log", `log/#${new URLSearchParams({ log: text })}`],
        ],
        question: "start-up log",
      };
    }
    if (found.file) {
      const whole = FILE.test(text) && text.includes("\n");
      if (!whole && IN_CI.test(text)) {
        return {
          said:
            "In CI, kvreport preflight FILE --require N reads the deployment file and exits with status 3 unless each server starts and holds N requests. A page has the complete workflow.",
          links: [
            ["check deployments in CI", "about/contract/#check-deployments-in-ci"],
            ["which files are read", "about/contract/#check-a-deployment-file"],
            ["check one file in the browser", "log/"],
          ],
          question: text,
        };
      }
      return {
        said: whole
          ? "The page for logs finds the servers of this file, and says whether they start. On the command line: kvreport preflight FILE."
          : "Paste the file on the page for logs. It finds the servers, and says whether they start. On the command line: kvreport preflight FILE.",
        links: [
          whole
            ? ["check the servers of this file", `log/#${new URLSearchParams({ log: text })}`]
            : ["check a deployment file", "log/"],
        ],
        question: "deployment file",
      };
    }
    const loads = home.includes("ollama") && state.model && /\bollama run\b/i.test(text);
    if (found.unread?.length || (START.test(` ${text} `) && !loads)) {
      if (found.unread && !found.unread.length) return null;
      const usual = [...site.gpus].sort((a, b) => b.rental - a.rental || b.providers - a.providers)[0].id;
      return {
        said: `${
          found.unread
            ? `This page does not follow ${
              found.unread.join(", ")
            }. The command line reads the whole start command.`
            : "Use the command line for the start command of a server."
        }${state.gpu ? "" : " The GPU is an example: state yours."}`,
        links: found.unread
          ? [[`the answer without ${found.unread.join(", ")}`, kvState.search(state) || "?"]]
          : [],
        command: `kvreport estimate ${kvState.quote((found.start || text.trim()).slice(0, 2000))} --gpu ${
          state.gpu || usual
        }`,
      };
    }
    const own = names.gpus.find(({ id }) => id === state.gpu);
    const model = names.models.find(({ id }) => id === state.model);
    if (found.own) {
      return {
        said:
          "The data page has what each release of kvreport changed, its figures for kvreport diff, and its tables, at permanent addresses. The other pages and the command compute with the newest release only.",
        links: [
          ["what each release changed", "data/#changes"],
          ["tables of older releases", "data/#releases"],
        ],
      };
    }
    const left = [...missed, ...asks];
    const at = (folder, values) => {
      const query = new URLSearchParams(Object.entries(values).filter(([, value]) => value)).toString();
      return folder + (query ? `?${query}` : "");
    };
    const computer = site.gpus.some((gpu) => gpu.id === state.gpu && gpu.most === 1);
    if (found.family && !home.length) {
      const list = own ? `gpus/${own.id}/` : "models/";
      return {
        said: "A list has these models, and its table as CSV. The data page has every table as a file.",
        links: [
          [
            `models named “${found.family}”${own ? ` on ${own.short || own.name}` : ""}`,
            at(list, { name: found.family }),
          ],
          ["the data as files", "data/"],
        ],
      };
    }
    if (found.cpu) {
      const about = { model: state.model, context: state.context };
      const sized = { ...about, requests: found.cpu.ram };
      return {
        said:
          `A page has the main memory that llama.cpp and Ollama need without a GPU, for weights in Q4_K_M.${
            engines.length ? " vLLM and SGLang are not computed for a CPU." : ""
          }${left.length ? ` Not used: ${left.join(", ")}.` : ""}`,
        links: [
          ["which models run on CPU and RAM alone", at("questions/no-gpu/", sized)],
          ["experts on the CPU next to a GPU", at("questions/experts-on-cpu/", about)],
        ],
        memory: { ...about, ...found.cpu },
      };
    }
    if (claim) {
      const stated = { model: model && state.model.replace("--", "/"), ...claim };
      const what = claim.quantity === "weights" ? "of weights" : "per token";
      return {
        said: "The claim checker recomputes a figure that somebody states.",
        links: [
          [`check ${claim.value} ${claim.unit} ${what}`, at("evidence/claims/", stated)],
          ...model ? [[`the page of ${model.name}`, `models/${model.id}/`]] : [],
        ],
        needs: Boolean(model) && claim.quantity === "weights",
        command: !model
          ? null
          : claim.quantity === "weights"
          ? `kvreport claim --model ${stated.model} --quantity weights --value ${claim.value} --unit ${claim.unit}`
          : `kvreport claim ${kvState.quote(`${stated.model} ${claim.value} ${claim.unit}/token`)}`,
      };
    }
    if (PER_TOKEN.test(text) && model && !own && !also.length) {
      return {
        said: `The page of the model has the bytes of a token and of a request.`,
        token: true,
        links: [[`the page of ${model.name}`, `models/${model.id}/`]],
      };
    }
    if (found.accuracy) {
      return {
        said:
          "The evidence has the errors of predictions, by engine, model family and weight format, with the number of logs.",
        links: [
          ["how accurate the estimate is", at("questions/how-accurate/", caseOf(state))],
          ["errors by engine, model family and weight format", "evidence/#where"],
        ].sort(([, a]) => (state.weights && a.startsWith("evidence") ? -1 : 0)),
      };
    }
    if (found.shared) {
      const requests = state.requests || found.crowd?.users;
      const asks = {
        model: state.model,
        gpu: state.gpu,
        context: workload?.prompt || state.context,
        requests,
      };
      return {
        said: "A page has what prefix caching saves, in memory and in time.",
        links: [["what a shared prompt saves", at("questions/shared-prompt/", asks)]],
        saving: asks,
      };
    }
    if (home.length || (computer && machine && !engines.length)) {
      return atHome({ ...found, text }, names, at, site);
    }
    const nearest = unpublished.map(({ label, near }) =>
      `Compare has no ${label}; the nearest: ${near.map((one) => one.label).join(", or ")}.`
    );
    const sidesOf = [...engines, ...unpublished.flatMap(({ near }) => near.map(({ name }) => name))];
    const releases = [...new Set(found.releases)];
    const numbers = releases.map((name) =>
      name.split("@")[1] || site.engines.find((one) => one.name === kvState.engineOf(site, name))?.version
    );
    const dated = releases.length === 2 && releases[0].split(/[@-]/)[0] === releases[1].split(/[@-]/)[0] &&
        (kvState.isBefore(numbers[0], numbers[1]) || kvState.isBefore(numbers[1], numbers[0]))
      ? releases
      : null; // two releases of one engine
    const changed = releases.length === 1 && releases[0].includes("@") &&
      /\bchang|\bnew\b|\bdiffer/i.test(text);
    const compared = Boolean(dated) || new Set(engines).size + unpublished.length > 1;
    // Two releases with one set of numbers keep their names.
    const listedEngines = dated && !unpublished.length && new Set(engines).size === 1 ? dated : sidesOf;
    // Requests of so many tokens hold as many, unless the question says how long prompts and answers are.
    const held = { ...state, gpu: gpus.length ? undefined : state.gpu };
    const usual = state.requests && !workload?.said.length ? kvKernel.USEFUL_TOKENS : undefined;
    const sized = kvState.sizerAddress({ ...held, context: state.context || workload?.context || usual }, {
      ...(found.crowd && {
        concurrent: undefined,
        users: found.crowd.users,
        rate: found.crowd.rate,
        latency: found.crowd.latency,
        ...(found.crowd.users === 1 && { burst: "1", spares: "0" }), // what the question does not ask for
      }),
      ...(workload?.prompt && { prompt: workload.prompt, average: undefined }),
      output: workload?.output,
      ttft: workload?.ttft,
      prices: own && found.price ? `${own.id}=${found.price}` : undefined,
    });
    const size = ["size a deployment", sized];
    const { model: _, ...rest } = state;
    const ofModel = model && [`the page of ${model.name}`, `models/${model.id}/${kvState.search(rest)}`];
    if (found.trace) {
      return {
        said:
          "The page for traffic replays a recorded load in your browser. It says how long requests wait on one replica, and how many replicas keep a target wait.",
        links: [
          ["replay your own trace", at("traffic/", { model: state.model, gpu: own?.id, tp: state.tp })],
          size,
        ],
      };
    }
    if (found.crowd) {
      const { users, rate, latency } = found.crowd;
      const flying = rate && latency && kvKernel.requestsInFlight(users, rate, latency);
      return {
        said: `The sizer computes the requests at once and the GPUs for a load.${
          flying
            ? ` Little’s law: ${users > 1 ? `${count(users)} × ` : ""}${rate} per minute × ${latency} s = ${
              count(+flying.toFixed(1))
            } requests at once.`
            : ""
        }`,
        links: [[`size a deployment for ${found.crowd.said}`, sized]],
        sides: Boolean(model && gpus.length),
        rest: gpus.length
          ? `Of ${count(users)} people, fewer ask at the same moment: the sizer computes how many.`
          : undefined,
        atOnce: Boolean(model && own),
      };
    }
    if (workload?.said.length) {
      return {
        said: `The sizer computes the GPUs for a workload: ${workload.said.join(", ")}.`,
        links: [size],
      };
    }
    if (atMost && !own) {
      return {
        said: model
          ? "Smaller quantizations need llama.cpp or Ollama."
          : `No model is named. The list has every machine with ${atMost} GB.`,
        links: [
          ...model ? [[`${model.name} by memory and quantization`, `models/${model.id}/#home`]] : [],
          [`machines with ${atMost} GB`, at("local/", { name: `${atMost}gb` })],
        ],
        cards: Boolean(model),
      };
    }
    if (also.length) {
      const listed = new URLSearchParams([state.model, ...also].map((id) => ["models", id]));
      for (const name of ["gpu", "engine", ...COMPARED]) {
        if (state[name] !== undefined) listed.append(name, state[name] === true ? "1" : state[name]);
      }
      // The comparison page has one format for all.
      const apart = Object.keys(found.formats).length > 0;
      return {
        said: apart
          ? "The comparison page has one format for all models: each side has its own answer here."
          : "The comparison page answers for several models, GPUs or engines.",
        links: apart
          ? [state.model, ...also].map((id) => {
            const weights = found.formats[id];
            return [
              `${names.models.find((one) => one.id === id).name}, weights ${
                weights ? `in ${weights.toUpperCase()}` : "as released"
              }`,
              kvState.search({ ...state, model: id, weights }),
            ];
          })
          : [["compare models, GPUs or engines", `compare/?${listed}`]],
        rest: left.length ? `Not used: ${left.join(", ")}.` : "",
        sides: Boolean(own),
      };
    }
    if (
      state.share && model && own &&
      site.engines.some(({ name, family }) => name === state.engine && family === "sglang")
    ) {
      const { share, ...others } = state;
      return {
        said:
          `This page has the numbers of SGLang for its default memory share only. The command line has those for ${share}.`,
        links: [["the answer with the default share", kvState.search({ tp: "fewest", ...others })]],
        command: commandOf(found, false),
      };
    }
    if (found.agents && !topics.length) {
      return {
        said: "A page has the GPUs for a number of coding agents, and how many idle sessions stay cached.",
        links: [
          [
            "how many GPUs for coding agents",
            at("questions/coding-agents/", caseOf(state)),
          ],
          size,
        ],
      };
    }
    if (gpus.length && found.counts && model && !found.each.length && !compared && !left.length) {
      const listed = new URLSearchParams([
        ["model", model.id],
        ...[state.gpu, ...gpus].map((id) => ["gpus", id]),
      ]);
      for (const name of COMPARED) {
        if (state[name] !== undefined && name !== "tp") listed.append(name, state[name]);
      }
      return {
        said: "",
        links: [size, ["compare equal numbers of these GPUs", `compare/?${listed}`]],
        fewest: true,
        among: [state.gpu, ...gpus],
      };
    }
    if (found.each?.length && model && !compared) {
      const { tp: _, ...shared } = state;
      const equal = new URLSearchParams([["model", model.id], ...found.each.map(([id]) => ["gpus", id])]);
      for (const name of COMPARED) if (shared[name] !== undefined) equal.append(name, shared[name]);
      return {
        said: left.length ? `Not used: ${left.join(", ")}.` : "",
        links: [
          ...found.each.map(([id, number]) => [
            `${number > 1 ? `${number} ×` : "one"} ${site.gpus.find((gpu) => gpu.id === id).short}`,
            kvState.search({ ...state, gpu: id, tp: number }),
          ]),
          ["compare equal numbers of these GPUs", `compare/?${equal}`],
          ...(state.requests ? [size] : []),
        ],
        sides: true,
      };
    }
    if (found.forms?.length) {
      const { tp, weights, ...shared } = state;
      return {
        said: "",
        rest: [
          !own && "No GPU was named: these are numbers of the GPU in the form.",
          left.length && `Not used: ${left.join(", ")}.`,
        ].filter(Boolean).join(" "),
        links: found.forms.map((form) => {
          const [[name, value]] = Object.entries(form);
          return [
            SETTINGS_SAID[name]
              ? `${SETTINGS_SAID[name]} ${value}`
              : name === "tp"
              ? `${value} ${value > 1 ? "GPUs" : "GPU"}`
              : `weights in ${value.toUpperCase()}`,
            kvState.search({ tp, weights, ...shared, ...form }),
          ];
        }),
        sides: true,
      };
    }
    const sides = gpus.length || compared;
    // What a release changed, for all models, is a page of its own.
    if (
      (compared || unpublished.length || /\bchang(es?|ed)\b|\breleases\b/i.test(text)) && !model && !own &&
      (engines.length || unpublished.length)
    ) {
      const listed = [...new Set(listedEngines)];
      const families = new Set(
        site.engines.filter(({ name }) => sidesOf.includes(name)).map((one) => one.family),
      );
      if (families.size > 1) {
        return {
          said: "The comparison page answers for several engines.",
          links: [["compare these engines", `compare/?engines=${listed.join()}`]],
        };
      }
      return {
        said: ["A page has what each release of vLLM and SGLang changed for all models.", ...nearest].join(
          " ",
        ),
        releases: dated || (changed && releases),
        rest: nearest.join(" "),
        links: [
          ["what each release of an engine changed", "data/engine-releases/"],
          [
            "compare models, GPUs or engines",
            listed.length > 1 ? `compare/?engines=${listed.join()}` : "compare/",
          ],
        ],
      };
    }
    const asPages = /\b(compare[ds]?|vs|versus)\b/i.test(text) && !found.layouts &&
      !(found.saves && own && model);
    if (sides || (asPages && (model || own || !missed.length))) {
      const listed = new URLSearchParams(state.model && { model: state.model });
      if (compared) listed.append("engines", [...new Set(listedEngines)].join());
      for (const id of [state.gpu, ...gpus].filter(Boolean)) {
        listed.append(compared || !sides ? "gpu" : "gpus", id);
      }
      for (const name of COMPARED) {
        // One card is what people own; the fewest that fit are compared then.
        if (state[name] !== undefined && !(name === "tp" && state.tp === 1)) listed.append(name, state[name]);
      }
      if (state.engine && !compared) listed.append("engine", state.engine);
      return {
        said: [
          "The comparison page answers for several models, GPUs or engines.",
          found.each?.length &&
          `It compares equal numbers of GPUs, not ${
            found.each.map(([id, number]) => `${number} × ${site.gpus.find((gpu) => gpu.id === id).short}`)
              .join(" and ")
          }: name a model, or compare one engine.`,
          ...nearest,
          model && nearest.length && "The command compares the releases of your question.",
        ].filter(Boolean).join(" "),
        links: [
          [
            nearest.length ? "compare the nearest releases" : "compare models, GPUs or engines",
            `compare/?${String(listed).replaceAll("%2C", ",").replaceAll("%40", "@")}`.replace(/\?$/, ""),
          ],
          ...(nearest.length ? [["what each release of an engine changed", "data/engine-releases/"]] : []),
          ...(state.requests ? [size] : []),
        ],
        rest: [nearest.join(" "), left.length && `Not used: ${left.join(", ")}.`].filter(Boolean).join(" "),
        sides: Boolean(model && (own || dated) && sides),
        releases: dated,
        // The command has the releases themselves.
        command: model && found.releases.length === 2 &&
            (unpublished.length ? unpublished.every(({ older }) => older) : listedEngines === dated)
          ? kvState.diffCommand(found.releases, state)
          : null,
      };
    }
    if (found.layouts && model && !own) {
      return {
        said: "Name a GPU and the number of GPUs to rank the layouts by the requests that they serve.",
        links: [["every layout, sized for a workload", sized], [
          "TP or DP for MLA models",
          "questions/mla-tp-or-dp/",
        ]],
      };
    }
    if (model && !own && SMALLEST.test(text)) {
      const priced = asks.some((word) => COST.test(word));
      return {
        said: priced ? "The least memory comes first: kvreport knows no prices. The sizer takes yours." : "",
        links: priced ? [size, ofModel] : [ofModel, size],
        smallest: true,
        fewest: priced,
      };
    }
    const which = /\b(what|which|how many|cheapest|best) (gpus?|cards?|hardware|server)\b|\bbuy\b/i;
    const cost = asks.filter((word) => COST.test(word)), waits = asks.some((word) => SPEED.test(word));
    if (
      which.test(text) || (model && cost.length && !topics.length) ||
      (found.counts && !topics.length && (waits || !(model && own)))
    ) {
      if (found.counts && own && model && !cost.length && !waits) return null;
      return {
        said: "The sizer finds the GPUs for a workload, and their cost.",
        links: /\bmillion\b|\bper (output )?token/i.test(text)
          ? [[
            "what a million tokens cost, with an example",
            "learn/one-decision-chain/#10-what-does-it-cost",
          ], size]
          : [size],
        fewest: Boolean(model && !own),
      };
    }
    if (model && missed.some((word) => TAKEN_AWAY.test(word))) {
      return {
        said:
          `The page of ${model.name} has its charts and tables as files, to embed, to cite and to print, and a badge.`,
        links: [[`the page of ${model.name}`, `models/${model.id}/`]],
      };
    }
    if (!model && !own && missed.some((word) => TAKEN_AWAY.test(word))) {
      return {
        said:
          "The page of each model has its charts and tables as files, to embed, to cite and to print. The data page has how to cite the dataset.",
        links: [["models", "models/"], ["how to cite the dataset", "data/#cite"]],
        search: false,
      };
    }
    const choice = asks.filter((word) => CHOICE.test(word));
    const speed = asks.filter((word) => SPEED.test(word));
    const about = caseOf(state);
    const pages = TOPICS.filter(([pattern]) => topics.some((word) => pattern.test(word))).map((
      [, what, page],
    ) => [what, at(page, about)]);
    if (own && missed.some((word) => SLICE_WORD.test(word))) {
      const slice = missed.find((word) => SLICE.test(word));
      const others = missed.filter((word) => !SLICE_WORD.test(word));
      return {
        said:
          `The page of the GPU lists its slices (MIG), if it has any. The command line answers for one of them.${
            others.length ? ` Not used: ${others.join(", ")}.` : ""
          }`,
        links: [[`the slices of ${own.name}`, `gpus/${own.id}/#slices`], ...(model ? [ofModel] : [])],
        command: slice && model
          ? commandOf({ ...found, state: { ...state, tp: undefined, gpu: `${own.id}:${slice}` } }, false)
          : null,
      };
    }
    if (!model) {
      const way = withoutModel({ ...found, text }, names, own, at, understood);
      if (!pages.length) return way;
      const said = `Another page explains ${quoted(topics)}.${own ? ` ${way.said}` : ""}`;
      return { ...way, said, rest: unfollowed(state, left), links: [...pages, ...way.links], search: false };
    }
    const changing = [
      ...topics,
      ...missed.filter((word) => CHANGES.test(word) || /\d/.test(word)),
    ];
    const unused = [...choice, ...speed, ...changing];
    // A sentence about something else that holds a word of a name.
    const words = missed.filter((word) => /[a-z]{2}/.test(word));
    const search = words.length > 2 || (!own && words.length > found.hits?.length);
    if (!unused.length && !unlisted && !search) return null;
    const links = [ofModel];
    if (own) links.push([`every model on ${own.name}`, at(`gpus/${own.id}/`, { context: state.context })]);
    if (speed.length) links.push(size);
    if (asks.some((word) => /^agent/.test(word))) {
      pages.unshift(["how many GPUs for coding agents", at("questions/coding-agents/", about)]);
    }
    links.unshift(...pages);
    if (unlisted || missed.some((word) => /^\d+(\.\d+)?b$/.test(word))) {
      links.push(["Your model reads its config", "your-model/"]);
    }
    const flagOf = (word) =>
      word.startsWith("rank=") ? word.replace("rank=", "--max-lora-rank ") : FLAGS[word];
    const flags = unlisted ? null : changing.every(flagOf) &&
      changing.map((word) => flagOf(word).replace("#", String(found.adapters)));
    const other = unused.length > topics.length || unlisted;
    const program = unused.length === 1 && ELSEWHERE.find(([pattern]) => pattern.test(unused[0]));
    // The command has the releases before those with numbers here, and those between two of them.
    const older = unused.length === 1 && unpublished.find((one) => one.older);
    const timed = Boolean(own) && (speed.length > 0 || (topics.includes("prefill") && HOW_LONG.test(text)));
    const others = unfollowed(state, unused.filter((word) => ![...topics, ...speed].includes(word)));
    const image = found.pixels && { model: model.id, pixels: found.pixels };
    if (search) {
      return {
        said: `Not used: ${missed.join(", ")}.`,
        rest: unfollowed(state, left),
        links,
        search: !pages.length,
      };
    }
    return {
      rest: others,
      timed,
      image,
      said: unlisted
        ? `“${unlisted}” is not in this catalog; ${model.name} is the nearest.`
        : !other
        ? topics.every((word) => A_FLAG.test(word))
          ? `Another page explains ${quoted(topics)}.`
          : `The numbers of this page do not include ${quoted(topics)}. Another page explains ${
            topics.length > 1 ? "them" : "it"
          }.`
        : `No answer here: ${quoted(unused)} ${unused.length > 1 ? "change" : "changes"} the question and ${
          unused.length > 1 ? "are" : "is"
        } not a setting of this page.`,
      links,
      command: own && older
        ? commandOf({ ...found, state: { ...state, engine: older.said.replace(" ", "@") } }, false)
        : own && program
        ? commandOf({ ...found, state: { ...state, engine: program[1] } }, false)
        : flags && flags.length && own
        ? [commandOf(found, false), ...new Set(flags)].join(" ")
        : null,
    };
  }

  /* What of a question the pages of questions follow. */
  const caseOf = ({ model, gpu, tp, weights, context, requests }) => ({
    model,
    gpu,
    tp,
    weights,
    context,
    requests,
  });

  /* What of a question those pages do not follow, as a sentence; "" where they follow all. */
  function unfollowed(state, words) {
    const own = Object.entries(state).filter(([name]) => !(name in caseOf(state)));
    const left = [...own.map(([name, value]) => `${name} ${value}`), ...words];
    return left.length ? `Not used: ${left.join(", ")}.` : "";
  }

  /* What of a question the page of comparisons follows, but for the engine. */
  const COMPARED = "context weights kv tp pp dp ep dcp".split(" ");

  const SETTINGS_SAID = { seqs: "max_num_seqs", batched: "max_num_batched_tokens", share: "memory share" };

  const quoted = (words) => words.map((word) => `“${word}”`).join(", ");

  /* What was typed, for the search of all pages. */
  const searched = (text, at) => [[`search all pages for “${text}”`, at("questions/", { q: text })]];

  /* A question that names no model: the list for its GPU with the words that may be of a name, or where to begin. */
  function withoutModel({ state, missed, asks, text }, names, own, at, understood) {
    const id = missed.find((word) => HUB_ID.test(word));
    if (id) {
      const [written] = text.match(new RegExp(id.replace(/[.]/g, "\\."), "i")) || [id];
      const flags = kvKernel.words.flags;
      return {
        said: `“${written}” is not in this catalog. “Your model” gives the same numbers from its config.`,
        links: [
          ["read the config of this model", at("your-model/", { hub: written, gpu: state.gpu })],
          ["models of the catalog", "models/"],
        ],
        command: own &&
          ["kvreport", "estimate", written, "--fetch", "--gpu", state.gpu].concat(
            state.context ? [flags.context_tokens, String(state.context)] : [],
          ).map(kvState.quote).join(" "),
      };
    }
    const uses = asks.map((word) => USES[word]).filter(Boolean);
    // Words that names have together: a list filtered by others would be empty.
    const together = (words) => names.models.some((model) => words.every((word) => hit(model, word)));
    const filter = [
      ...missed.filter((word) => /^(\d+(\.\d+)?b|[a-z]{3,})$/.test(word) && !CHANGES.test(word)),
      ...uses,
    ].reduce((kept, word) => (together([...kept, word]) ? [...kept, word] : kept), []);
    const unused = [...asks, ...missed].filter((word) => !filter.includes(USES[word] || word));
    const rest = unused.length ? ` Not used: ${unused.join(", ")}.` : "";
    if (state.gpu?.includes("+")) {
      return {
        said: `No model is named. Compare takes models for ${understood[0]}.${rest}`,
        links: [
          ["models on this machine, compared", `compare/?gpu=${encodeURIComponent(state.gpu)}`],
          ["models", "models/"],
        ],
      };
    }
    if (own) {
      // What a machine at home runs for a use is on its own page: servers need other formats for it.
      const atHome = names.machines.some(({ id }) => id === own.id);
      if (atHome && filter.every((word) => uses.includes(word))) filter.length = 0;
      const values = { context: state.context, weights: state.weights, tp: state.tp, name: filter.join(" ") };
      return {
        search: unused.length > 2,
        machine: atHome && !(state.tp > 1) ? own.id : undefined,
        said: `No model is named. The list for ${own.name} has every model.${rest}`,
        links: [
          ...names.machines.filter(({ id }) => id === own.id).map(({ id, name }) => [
            `which model for one ${name}`,
            at(`local/${id}/`, { context: state.context }),
          ]),
          [
            filter.length ? `“${filter.join(" ")}” on ${own.name}` : `every model on ${own.name}`,
            at(`gpus/${own.id}/`, values),
          ],
        ],
      };
    }
    const sizer = ["size a deployment", kvState.sizerAddress({ requests: state.requests })];
    const begin = [["Learn: what takes the memory", "learn/"], ["Questions and answers", "questions/"]];
    const sentence = missed.length > filter.length + 1; // a word of it may be one of a name
    const models = understood.length || (filter.length && !sentence)
      ? [[
        filter.length ? `models named “${filter.join(" ")}”` : "models",
        at("models/", { name: filter.join(" ") }),
      ]]
      : [];
    return {
      said: `No model and no GPU is named.${rest}`,
      links: [
        ...state.requests ? [sizer, ...models, ...begin] : [...models, ...begin, sizer],
        ...missed.length ? searched(text, at) : [],
      ],
      search: missed.length > filter.length || !understood.length,
    };
  }

  /* A question about one computer: its page, the model's part about machines, and the command that answers it. */
  function atHome(found, names, at, site) {
    const { state, home, machine, missed, asks, text } = found;
    const model = names.models.find(({ id }) => id === state.model);
    const own = names.machines.find(({ id }) => id === machine);
    const links = [];
    const { context } = state;
    if (own) links.push([`what runs on the ${own.name}`, at(`local/${own.id}/`, { context })]);
    else if (names.machines.length) {
      // Words that a machine of the list has: "studio" is in no name.
      const words = home.filter((word) => !AT_HOME.test(word)).join(" ").split(" ").reduce((kept, word) => {
        const all = [...kept, word].map(plainName);
        return names.machines.some(({ plain }) => all.every((one) => plain.includes(one)))
          ? [...kept, word]
          : kept;
      }, []);
      links.push(["what runs on your machine", at("local/", { name: words.join(" "), context })]);
    }
    if (model) links.push([`${model.name} by memory and quantization`, `models/${model.id}/#home`]);
    // A server on the same machine is another question, which this page answers.
    if (model && state.gpu) {
      links.push([
        "the answer for a server",
        at("", { model: model.id, gpu: state.gpu, context: state.context }),
      ]);
    }
    const search = missed.length > (own ? 3 : 1) || (missed.length > 0 && !model && !own);
    if (search) links.push(...searched(text, at));
    const longest = model && /\bcontext\b/i.test(text); // "largest context" chooses no model
    const left = [
      ...missed,
      ...found.topics || [],
      ...(state.kv ? [`${state.kv} cache`] : []),
      ...asks.filter((word) => !longest || !/^(largest|biggest)$/.test(word)),
    ];
    // Mixes of one maker have bits of their own for each tensor: only a file says them.
    const unread = home.some((word) => /^ud-|_xl$/.test(word));
    const unused = (left.length ? ` Not used: ${left.join(", ")}.` : "") +
      (unread ? " kvreport reads this mix from its file: kvreport estimate FILE.gguf." : "");
    const about = home.length
      ? `${quoted(home)} ${home.length > 1 ? "are" : "is"} about one computer`
      : `The ${own.name} is a single computer`;
    // "a 24 GB card": the one with it that most clouds rent out.
    const bytes = home.reduce((size, word) => size || parseInt(SIZED.exec(word)?.[0], 10) * 2 ** 30, 0);
    const sized = !own && !home.some((word) => MAC.test(word)) &&
      site.gpus.filter(({ id, card, usable }) =>
        card && usable <= bytes && usable >= bytes * 0.9 && names.machines.some((one) => one.id === id)
      ).sort((a, b) => b.providers - a.providers || b.usable - a.usable)[0];
    if (model && sized) {
      links.push([
        "which context fits this model",
        at("questions/gguf-context/", { ...caseOf(state), gpu: sized.id, tp: undefined }),
      ]);
    }
    const mix = home.map((word) => MIX.exec(word)?.[1]).find(Boolean) || "q4_k_m";
    const device = own?.id || state.gpu || sized?.id;
    return {
      machine: own?.id,
      slot: model && (device || SIZE_ASKED.test(text)) && !(state.tp > 1) && !unread &&
        (USUAL_MIX[mix] || mix) === "q4_k_m" && {
        model: model.id,
        gpu: device,
        context: state.context,
        quantized: home.includes("cache q8_0"),
        ollama: home.includes("ollama"),
      },
      said: `${
        sized && !state.gpu
          ? `${
            quoted(
              home.filter((word) => SIZED.test(word)).map((word) => word.replace("gb", " GB")),
            )
          } was taken as one ${sized.short}. `
          : ""
      }${about}: llama.cpp, Ollama and MLX need different numbers than the server engines on this page.${unused}`,
      links,
      search,
      command: model && !unread && (own || state.gpu)
        ? commandOf(found, true) + (missed.includes("layers") ? " --fit" : "")
        : null,
    };
  }

  /* The command that answers a question: with the engine, mix and machine of one computer where it is about one. */
  function commandOf({ state, home, machine }, local) {
    const flags = kvKernel.words.flags;
    const said = ["kvreport", "estimate", state.model.replace("--", "/"), "--gpu", machine || state.gpu];
    const program = home.find((word) => /^(ollama|mlx)/.test(word));
    const mix = home.map((word) => MIX.exec(word)?.[1]).find(Boolean);
    const values = {
      tensor_parallel: state.tp > 1 && state.tp,
      pipeline_parallel: state.pp > 1 && state.pp,
      data_parallel: state.dp > 1 && state.dp,
      expert_parallel: state.ep,
      engine: local ? (program ? program.replace(/-lm$/, "") : "llama-cpp") : state.engine,
      weights: local ? USUAL_MIX[mix] || mix || AS_MIX[state.weights] : state.weights,
      kv: local ? undefined : state.kv,
      context_tokens: state.context,
      utilization: state.share,
    };
    for (const [name, value] of Object.entries(values)) {
      if (value) said.push(flags[name], ...(value === true ? [] : [String(value)]));
    }
    if (home.includes("cache q8_0")) said.push("--cache-type-k", "q8_0", "--cache-type-v", "q8_0");
    if (state.requests) said.push(...(local ? ["--parallel"] : ["--require"]), String(state.requests));
    return said.map(kvState.quote).join(" ");
  }

  /* The sentence that says what a text was taken for. */
  function said({ understood, missed, unlisted, home, machine, state }, names) {
    const own = names?.machines.find(({ id }) => id === machine);
    // A kind of models, where none is named, chooses among names: “coder”.
    const named = state?.model ? [] : missed.filter((word) => KINDS.has(word));
    const kinds = missed.length > named.length + 1 ? [] : named; // a word of a sentence
    const things = [...new Set([...understood, ...(!understood.length && own ? [own.name] : home)])];
    const known = [...things, ...kinds.map((word) => `models named “${word}”`)];
    const strange = missed.filter((word) =>
      !kinds.includes(word) && !(unlisted && unlisted.endsWith(` ${word}`))
    );
    return [
      unlisted && `“${unlisted}” is not in this catalog; ${understood[0]} is the nearest.`,
      known.length ? `Understood: ${known.join(" · ")}.` : "Nothing was understood.",
      strange.length && `Not understood (${count(strange.length)}): ${strange.join(", ")}.`,
    ].filter(Boolean).join(" ");
  }

  kvreport.asked = { understand, prepared, said, wayTo, AT_HOME };
})();
