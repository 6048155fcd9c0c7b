import { expect, it } from "vitest";
import { inZone } from "./format";

it.each([
  ["2026-10-24T07:15:00Z", "Europe/Berlin", "Sat 2026-10-24 09:15 +02:00"],
  ["2026-10-25T08:15:00Z", "Europe/Berlin", "Sun 2026-10-25 09:15 +01:00"],
  ["2026-12-31T23:30:00Z", "Asia/Kolkata", "Fri 2027-01-01 05:00 +05:30"],
  ["2026-06-01T00:00:07Z", "UTC", "Mon 2026-06-01 00:00:07 +00:00"],
  ["2026-06-01T00:00:00Z", "UTC", "Mon 2026-06-01 00:00 +00:00"],
  ["2026-06-01T00:00:00Z", "Nowhere/Else", "Mon 2026-06-01 00:00 +00:00"],
])("%s in %s", (time, zone, shown) => expect(inZone(time, zone)).toBe(shown));
