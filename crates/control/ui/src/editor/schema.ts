// The JSON Schema of the config: the keys and values that fit a place, with their descriptions.
import type { Step } from "./place";

export interface Schema {
  $ref?: string;
  $defs?: Record<string, Schema>;
  type?: string | string[];
  description?: string;
  default?: unknown;
  const?: unknown;
  enum?: unknown[];
  properties?: Record<string, Schema>;
  additionalProperties?: Schema | boolean;
  patternProperties?: Record<string, Schema>;
  items?: Schema | boolean;
  prefixItems?: Schema[];
  anyOf?: Schema[];
  oneOf?: Schema[];
  allOf?: Schema[];
}

const DEPTH_MAX = 24;

export interface Found {
  name: string;
  detail: string;
  info: string;
}

export class ConfigSchema {
  constructor(private readonly root: Schema) {}

  /** The keys that a map at this path may have. */
  keys(path: Step[]): Found[] {
    const found = new Map<string, Found>();
    for (const schema of this.at(path)) {
      for (const [name, inner] of Object.entries(schema.properties ?? {})) {
        if (!found.has(name)) found.set(name, { name, detail: this.kind(inner), info: this.about(inner) });
      }
    }
    return [...found.values()];
  }

  /** The values that are known at this path. */
  values(path: Step[]): Found[] {
    const found = new Map<string, Found>();
    const add = (value: unknown, schema: Schema) => {
      const name = typeof value === "string" ? value : JSON.stringify(value);
      if (!found.has(name)) found.set(name, { name, detail: "", info: schema.description ?? "" });
    };
    for (const schema of this.at(path)) {
      schema.enum?.forEach((value) => add(value, schema));
      if (schema.const !== undefined) add(schema.const, schema);
      if (typesOf(schema).includes("boolean")) [true, false].forEach((value) => add(value, {}));
    }
    return [...found.values()];
  }

  /** What is known about the key at the end of a path; empty if nothing is. */
  describe(path: Step[]): string {
    const name = path.at(-1);
    if (typeof name !== "string") return "";
    for (const schema of this.at(path.slice(0, -1))) {
      const inner = schema.properties?.[name];
      if (inner) return this.about(inner);
    }
    return "";
  }

  private about(schema: Schema): string {
    const described = this.expanded(schema).find(({ description }) => description);
    // The lines of a description are those of the source; only empty lines separate paragraphs.
    const parts = [described?.description?.replace(/([^\n])\n(?!\n)/g, "$1 ") ?? ""];
    const { default: usual } = schema;
    const isShown = usual !== undefined && usual !== null && JSON.stringify(usual).length <= 60;
    if (isShown) parts.push(`Default: ${typeof usual === "string" ? usual : JSON.stringify(usual)}`);
    return parts.filter((part) => part !== "").join("\n");
  }

  private kind(schema: Schema): string {
    const kinds = new Set<string>();
    for (const each of this.expanded(schema)) {
      if (each.enum || each.const !== undefined) kinds.add("choice");
      typesOf(each).filter((type) => type !== "null").forEach((type) => kinds.add(NAMES[type] ?? type));
    }
    return [...kinds].slice(0, 3).join(" or ");
  }

  /** The schemas of the value at a path. */
  private at(path: Step[]): Schema[] {
    return path.reduce<Schema[]>((schemas, step) => schemas.flatMap((schema) => this.inner(schema, step)), this.expanded(this.root));
  }

  private inner(schema: Schema, step: Step): Schema[] {
    if (typeof step === "number") {
      const items = schema.prefixItems?.[step] ?? schema.items;
      return typeof items === "object" ? this.expanded(items) : [];
    }
    const known = schema.properties?.[step];
    if (known) return this.expanded(known);
    const pattern = Object.entries(schema.patternProperties ?? {}).find(([pattern]) => matches(pattern, step))?.[1];
    const other = pattern ?? schema.additionalProperties;
    return typeof other === "object" ? this.expanded(other) : [];
  }

  /** A schema with those that it refers to and chooses from. */
  private expanded(schema: Schema, depth = 0): Schema[] {
    if (depth > DEPTH_MAX) return [];
    const name = schema.$ref?.replace("#/$defs/", "");
    const referred = name === undefined ? undefined : this.root.$defs?.[name];
    const others = [...(referred ? [referred] : []), ...(schema.anyOf ?? []), ...(schema.oneOf ?? []), ...(schema.allOf ?? [])];
    return [schema, ...others.flatMap((other) => this.expanded(other, depth + 1))];
  }
}

const NAMES: Record<string, string> = { object: "map", array: "list", string: "text", integer: "number" };

const typesOf = ({ type }: Schema) => (type === undefined ? [] : [type].flat());

function matches(pattern: string, text: string): boolean {
  try {
    return new RegExp(pattern, "u").test(text);
  } catch {
    return false;
  }
}
