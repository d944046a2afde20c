// What the site's scripts share as globals, for the type checker. The formulas' types (`Kernel`) are
// generated beside this file's copy: scripts/javascript.py.

/** A configuration: everything of an answer but the context; made by `kvCapacity.configure`. */
type Configuration = Record<string, any>;

interface CapacityScript {
  unpack(site: any, size: number, packed: any): any[];
  configure(
    site: any,
    model: any,
    gpu: any,
    size: number,
    weightFormat: string,
    kvFormat: string,
    later?: boolean,
  ): Configuration | null;
  answer(config: Configuration, context: number): {
    users: number;
    ceiling: number;
    request: number;
    verdict: string;
    token: number;
  };
  serves(config: Configuration, context: number): boolean;
}

declare var kvKernel: Kernel;
declare var kvCapacity: CapacityScript;
declare var kvLessons: any;
declare var kvSizing: any;
declare var kvLogLines: any;
declare var kvTraffic: any;
declare var kvreport: any;

// The theme's, the chart library's, and a worker's.
interface Window {
  document$: any;
}
declare function vegaEmbed(host: Element, spec: any, options: any): Promise<any>;
declare function importScripts(...addresses: string[]): void;
