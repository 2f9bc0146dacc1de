// A table whose rows become cards on a narrow screen. The roles are explicit, since `display` takes them away there.
import type { ComponentChildren } from "preact";

export interface Column<T> {
  key: string;
  title: string;
  /** A second line of the title. */
  note?: string;
  help?: string;
  numeric?: boolean;
  sortable?: boolean;
  class?: string;
  cell: (row: T) => ComponentChildren;
}

export interface Sort {
  key: string;
  descending: boolean;
}

/** Sorts rows in place. */
export function ordered<T>(rows: T[], read: (row: T) => number | string, descending: boolean): T[] {
  const factor = descending ? -1 : 1;
  return rows.sort((one, other) => {
    const [a, b] = [read(one), read(other)];
    return factor * (typeof a === "string" ? a.localeCompare(String(b)) : a - Number(b));
  });
}

interface Props<T> {
  label: string;
  columns: Column<T>[];
  rows: T[];
  rowKey: (row: T) => string;
  rowClass?: (row: T) => string;
  /** On a narrow screen, the values stand in one line, without titles. */
  compact?: boolean;
  sort?: Sort;
  onSort?: (sort: Sort) => void;
}

export function Table<T>({ label, columns, rows, rowKey, rowClass, compact = false, sort, onSort }: Props<T>) {
  const [first] = columns;
  const direction = (key: string) => (sort?.key !== key ? "none" : sort.descending ? "descending" : "ascending");
  return (
    <table role="table" aria-label={label} class={compact ? "compact" : ""}>
      <thead role="rowgroup">
        <tr role="row">
          {columns.map((column) => (
            <th
              key={column.key}
              role="columnheader"
              scope="col"
              class={column.numeric ? "number" : ""}
              title={column.help ?? ""}
              {...(column.sortable && onSort ? { "aria-sort": direction(column.key) as "none" } : {})}
            >
              {column.sortable && onSort ? (
                <button
                  type="button"
                  class={`sort ${direction(column.key)}`}
                  onClick={() => onSort({ key: column.key, descending: sort?.key === column.key ? !sort.descending : column.numeric === true })}
                >
                  {column.title}
                </button>
              ) : (
                column.title
              )}
              {column.note && <small>{column.note}</small>}
            </th>
          ))}
        </tr>
      </thead>
      <tbody role="rowgroup">
        {rows.map((row) => (
          <tr key={rowKey(row)} role="row" class={rowClass?.(row) ?? ""}>
            {columns.map((column) => {
              const name = `${column.numeric ? "number" : ""} ${column.class ?? ""}`.trim();
              return column === first ? (
                <th key={column.key} role="rowheader" scope="row" class={name}>
                  {column.cell(row)}
                </th>
              ) : (
                <td key={column.key} role="cell" class={name} data-label={column.title}>
                  <div class="value">{column.cell(row)}</div>
                </td>
              );
            })}
          </tr>
        ))}
      </tbody>
    </table>
  );
}
