/** What was typed and not sent, of each thread. It outlives a page that is read again, and one that asks for credentials, and ends with its tab. */
const prefix = "understudy:draft:";

/** While it is not known who uses the tab: what they typed, which is not kept yet, and which fields show drafts later. */
let hidden = false;
const typed = new Map<string, string>();
const fields = new Set<() => void>();

export function draftOf(key: string): string {
  if (hidden) return typed.get(key) ?? "";
  try {
    return sessionStorage.getItem(prefix + key) ?? "";
  } catch {
    return ""; // a browser may keep nothing
  }
}

export function keepDraft(key: string, text: string) {
  if (hidden) return void typed.set(key, text);
  try {
    if (text) sessionStorage.setItem(prefix + key, text);
    else sessionStorage.removeItem(prefix + key);
  } catch {
    // it is full, or keeps nothing
  }
}

/** Hides drafts until draftsOf says whose they are. */
export function hideDrafts() {
  hidden = true;
}

/** Calls then when hidden drafts are shown, before they get what was typed meanwhile. Returns what ends it. */
export function whenShown(then: () => void): () => void {
  fields.add(then);
  return () => void fields.delete(then);
}

/** A draft that was hidden, followed by what was typed meanwhile. */
export const joined = (before: string, text: string) => (before && text ? `${before}\n${text}` : before || text);

const owner = "understudy:drafts-of";

/**
 * Says who uses the tab, and shows their drafts. What another person typed is removed; what was typed before anyone was known belongs to who comes first.
 * hiddenToo: what was typed while drafts were hidden is theirs as well.
 */
export function draftsOf(who: string, hiddenToo = false) {
  try {
    const before = sessionStorage.getItem(owner);
    if (before !== null && before !== who) {
      forget();
      if (!hiddenToo) typed.clear();
    }
    sessionStorage.setItem(owner, who);
  } catch {
    // then there are no drafts
  }
  if (!hidden) return;
  hidden = false;
  for (const then of fields) then();
  for (const [key, text] of typed) if (text) keepDraft(key, joined(draftOf(key), text));
  typed.clear();
}

/** Removes all drafts: another person may use the tab. */
export function dropDrafts() {
  typed.clear();
  forget();
}

function forget() {
  try {
    for (const key of Object.keys(sessionStorage)) if (key.startsWith(prefix)) sessionStorage.removeItem(key);
  } catch {
    // there are none
  }
}
