// Which keys are for a field, and which for the page.

/** isTyping says whether a key goes into a field, an editor or a terminal. */
export function isTyping(e: KeyboardEvent): boolean {
  const target = e.composedPath()[0];
  return (
    target instanceof HTMLElement &&
    (target.isContentEditable || /^(INPUT|TEXTAREA|SELECT)$/.test(target.tagName) || target.closest('.xterm') !== null)
  );
}
