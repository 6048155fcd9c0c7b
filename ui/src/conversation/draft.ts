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

/** Removes all drafts: another person may use the tab. */
export function dropDrafts() {
  try {
    for (const key of Object.keys(sessionStorage)) if (key.startsWith(prefix)) sessionStorage.removeItem(key);
  } catch {
    // there are none
  }
}
