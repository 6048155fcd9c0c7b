/** What was typed and not sent, of each thread. It outlives a page that is read again, and one that asks for credentials, and ends with its tab. */
const prefix = "understudy:draft:";

export function draftOf(key: string): string {
  try {
    return sessionStorage.getItem(prefix + key) ?? "";
  } catch {
    return ""; // a browser may keep nothing
  }
}

export function keepDraft(key: string, text: string) {
  try {
    if (text) sessionStorage.setItem(prefix + key, text);
    else sessionStorage.removeItem(prefix + key);
  } catch {
    // it is full, or keeps nothing
  }
}

const owner = "understudy:drafts-of";

/** Says who uses the tab. What another person typed is removed; what was typed before anyone was known belongs to who comes first. */
export function draftsOf(who: string) {
  try {
    const before = sessionStorage.getItem(owner);
    if (before !== null && before !== who) dropDrafts();
    sessionStorage.setItem(owner, who);
  } catch {
    // then there are no drafts
  }
}

/** Removes all drafts: another person may use the tab. */
export function dropDrafts() {
  try {
    for (const key of Object.keys(sessionStorage)) if (key.startsWith(prefix)) sessionStorage.removeItem(key);
  } catch {
    // there are none
  }
}
