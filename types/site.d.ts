// What the site's scripts share as globals, for the type checker. The formulas' types (`Kernel`) are
// generated beside this file's copy: scripts/javascript.py.

/** A configuration: everything of an answer but the context; made by `kvCapacity.configure`. */
type Configuration = Record<string, any>;

interface CapacityScript {
  demandOf(times: any, peaks: any, weightFormat: string, kvFormat: string, size: number, ranks: number): any;
  configure(
    site: any,
    model: any,
    gpu: any,
    size: number,
    weightFormat: string,
    kvFormat: string,
    asked?: boolean | Asked,
  ): Configuration | null;
  /** The ids that a text names, place by place; null where one is unknown. */
  devicesOf(site: any, text: string): string[] | null;
  machineId(ids: string[]): string;
  /** An accelerator, or a machine of unequal ones, which has them as `devices`. */
  gpuOf(site: any, id: string | undefined): any;
  stands(gpu: any, layout: any): boolean;
  ranksOf(
    site: any,
    model: any,
    gpu: any,
    layout: any,
    weightFormat: string,
    kvFormat: string,
    asked?: boolean | Asked,
  ): any[] | null;
  reserveParts(config: Configuration): { activations: number; outside: number; graphs: number } | null;
  underEngine(site: any, other: any): any;
  decided(model: any, own: any): any;
  unpacked(site: any, models: any[]): any;
  isPublished(model: any, gpu: any): boolean;
  /** Tokens of a step and requests at once that the engine takes for a model on a device by itself. */
  usualStep(model: any, gpu: any): number[];
  /** Everything that one request of a configuration reserves: its blocks, and its part of other pools. */
  reservedBytes(config: any, context: number): number;
  wholeToken(config: any, context: number): number;
  /** The same of a server that is told a longest request of so many tokens. */
  told(config: Configuration, context: number): Configuration;
  /** The same rank with a pool that much larger. */
  shifted(rank: any, bytes: number): any;
  /** The longest context that one request, or each of so many, can have. */
  longestOf(ranks: any, wanted?: number): number;
  answer(config: Configuration, context: number): Answer;
  /** What the command of a deployment cannot say. */
  commandNotes(site: any, deployment: any): string[];
  /** Tokens of a deployment's pools in requests of one length; Infinity where nothing limits them. */
  poolTokens(deployment: any, context: number): number;
  mostServed(deployment: any, context: number): number;
  /** The deployment of a layout: its fullest rank, with all of them under `ranks`. */
  deploy(
    site: any,
    model: any,
    gpu: any,
    layout: any,
    weightFormat: string,
    kvFormat: string,
    asked?: Asked,
  ): Configuration | null;
  serve(deployment: Configuration, context: number): Answer;
  serves(config: Configuration, context: number): boolean;
}

/** What is asked beside model, device and formats. */
interface Asked {
  context?: number;
  later?: boolean;
  share?: number;
  batched?: number;
  seqs?: number;
  eager?: boolean;
  ceiling?: boolean;
}

interface Answer {
  users: number;
  held: number;
  limitedBy: string;
  ceiling: number;
  request: number;
  verdict: string;
  short: number;
  token: number;
}

declare var kvKernel: Kernel;
declare var kvCapacity: CapacityScript;
declare var kvLessons: any;
declare var kvState: any;
declare var kvResult: any;
declare var kvSizing: any;
declare var kvMatrix: any;
declare var kvQueries: any;
declare var kvSql: any;
declare var kvLogLines: any;
declare var kvLogLocal: any;
declare var kvTraffic: any;
declare var kvFlight: any;
declare var kvreport: any;

// The theme's, the chart library's, and a worker's.
interface Window {
  document$: any;
}
declare function vegaEmbed(host: Element, spec: any, options: any): Promise<any>;
declare function importScripts(...addresses: string[]): void;
