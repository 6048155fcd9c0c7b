import type { QueryClient, QueryKey } from "@tanstack/react-query";

/**
 * Reads again what pages show of something that was saved. Reads that began before may not have it and do not count: invalidateQueries alone
 * lets the first read of a page end, and takes its answer for the newest.
 */
export async function readAgain(queries: Pick<QueryClient, "invalidateQueries" | "cancelQueries">, ...keys: QueryKey[]): Promise<void> {
  await Promise.all(
    keys.map(async (queryKey) => {
      await queries.cancelQueries({ queryKey });
      await queries.invalidateQueries({ queryKey });
    }),
  );
}
