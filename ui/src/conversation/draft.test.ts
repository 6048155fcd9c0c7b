import { beforeEach, expect, it, vi } from "vitest";

/** A tab that is read anew: its module, and the storage that outlives it. */
let storage: Record<string, string>;
beforeEach(() => {
  storage = Object.create({
    getItem: (key: string) => storage[key] ?? null,
    setItem: (key: string, value: string) => (storage[key] = value),
    removeItem: (key: string) => delete storage[key],
  }) as Record<string, string>;
  vi.stubGlobal("sessionStorage", storage);
});
const page = () => (vi.resetModules(), import("./draft"));

it("hides drafts until it is known whose they are", async () => {
  const before = await page();
  before.draftsOf("ada");
  before.keepDraft("new", "of ada");
  const { draftOf, draftsOf, hideDrafts } = await page();
  hideDrafts();
  expect(draftOf("new")).toBe("");
  draftsOf("ada", true);
  expect(draftOf("new")).toBe("of ada");
});

it("removes hidden drafts of another person, and keeps what was typed meanwhile", async () => {
  const before = await page();
  before.draftsOf("ada");
  before.keepDraft("new", "of ada");
  before.keepDraft("t", "of ada");
  const { draftOf, draftsOf, hideDrafts, keepDraft } = await page();
  hideDrafts();
  keepDraft("new", "of bob");
  expect(draftOf("new")).toBe("of bob");
  expect(JSON.stringify(storage)).not.toContain("bob");
  draftsOf("bob", true);
  expect([draftOf("new"), draftOf("t")]).toEqual(["of bob", ""]);
});

it("shows hidden drafts in fields in front of what was typed meanwhile", async () => {
  const before = await page();
  before.draftsOf("ada");
  before.keepDraft("new", "first");
  const { draftOf, draftsOf, hideDrafts, joined, keepDraft, whenShown } = await page();
  hideDrafts();
  let field = "second";
  keepDraft("new", field);
  keepDraft("t", ""); // sent meanwhile
  whenShown(() => (field = joined(draftOf("new"), field)));
  draftsOf("ada", true);
  expect([field, draftOf("new"), draftOf("t")]).toEqual(["first\nsecond", "first\nsecond", ""]);
});

it("does not give what was typed in a session that ended to another person who signs in", async () => {
  (await page()).draftsOf("ada");
  const { draftOf, draftsOf, hideDrafts, keepDraft } = await page();
  hideDrafts();
  keepDraft("new", "of ada");
  draftsOf("bob");
  expect(draftOf("new")).toBe("");
});
