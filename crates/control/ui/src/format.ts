// Numbers, times and sizes as people read them.

const digits = (value: number) => (value >= 100 ? 0 : value >= 10 ? 1 : 2);

export const number = (value: number) => value.toLocaleString("en", { maximumFractionDigits: digits(value) });
export const whole = (value: number) => value.toLocaleString("en", { maximumFractionDigits: 0 });
/** Formats nano-dollars. Amounts below a cent are exact. */
export const dollars = (nano: number) =>
  `$${(nano / 1e9).toLocaleString("en", { minimumFractionDigits: 2, maximumFractionDigits: nano < 1e7 ? 9 : 4 })}`;
/** Writes nano-dollars out, for those who compare them with a bill. */
export const exactly = (nano: number) => `${whole(nano)} nano-dollars`;
export const plural = (count: number, one: string, many = `${one}s`) => `${whole(count)} ${count === 1 ? one : many}`;

type Steps = [string, number][];

/** Formats a value in the largest unit of `steps` that it reaches. */
function scaled(value: number, steps: Steps): [string, string] {
  const [unit, size] = steps.findLast(([, size]) => value >= size) ?? steps[0]!;
  return [number(value / size), unit];
}

const BYTES: Steps = [["B", 1], ["KiB", 2 ** 10], ["MiB", 2 ** 20], ["GiB", 2 ** 30], ["TiB", 2 ** 40]];
const TIMES: Steps = [["µs", 1], ["ms", 1e3], ["s", 1e6]];

export const byteParts = (value: number) => scaled(value, BYTES);
export const bytes = (value: number) => byteParts(value).join(" ");
export const time = (us: number | null | undefined) => (us == null ? "–" : scaled(us, TIMES).join(" "));

/** Formats a share with one decimal; a share close to 0 or 1 is not rounded to it. */
export function percent(share: number): string {
  if (share > 0 && share < 0.001) return "< 0.1 %";
  if (share < 1 && share > 0.999) return "> 99.9 %";
  return `${(100 * share).toLocaleString("en", { maximumFractionDigits: 1 })} %`;
}

export function duration(seconds: number): string {
  const whole = Math.floor(seconds);
  const [d, h, m, s] = [Math.floor(whole / 86400), Math.floor(whole / 3600) % 24, Math.floor(whole / 60) % 60, whole % 60];
  if (d) return `${d} d ${h} h`;
  if (h) return `${h} h ${m} min`;
  return m ? `${m} min ${s} s` : `${s} s`;
}

/** Formats the time that is left until a moment in microseconds since the epoch. */
export function until(us: number): string {
  return duration(Math.max(0, Math.ceil(us / 1e6 - Date.now() / 1000)));
}

const two = (value: number) => String(value).padStart(2, "0");

export function clock(date: Date): string {
  return `${two(date.getHours())}:${two(date.getMinutes())}:${two(date.getSeconds())}`;
}

/** The zone of all times of the page, as `UTC+2` or `UTC+5:30`. */
export function zone(): string {
  const minutes = -new Date().getTimezoneOffset();
  const [hours, rest] = [Math.floor(Math.abs(minutes) / 60), Math.abs(minutes) % 60];
  return minutes === 0 ? "UTC" : `UTC${minutes > 0 ? "+" : "−"}${hours}${rest > 0 ? `:${two(rest)}` : ""}`;
}

export function day(date: Date): string {
  const today = new Date();
  const day = `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())}`;
  return date.toDateString() === today.toDateString() ? clock(date) : `${day} ${clock(date)}`;
}
