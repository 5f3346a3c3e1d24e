// The part of a long list that is in the document: the rows in sight and some around them. All rows have one height.

import type { RefObject } from 'preact';
import { useEffect, useState } from 'preact/hooks';

const OVERSCAN = 12;
/** Rows are made again when the scroll position passes a multiple of so many rows. */
const STEP = 4;

export interface Window {
  first: number;
  last: number; // exclusive
  /** Height of the box in pixels. */
  height: number;
  /** place is called when the box was scrolled. */
  place: () => void;
}

/** useWindow returns which of count rows are in sight in a box that scrolls. */
export function useWindow(box: RefObject<HTMLElement | null>, count: number, rowHeight: number): Window {
  const [scroll, setScroll] = useState({ top: 0, height: 800 });
  const place = (): void => {
    const element = box.current;
    if (!element) return;
    const step = STEP * rowHeight;
    const top = Math.floor(element.scrollTop / step) * step;
    const height = element.clientHeight;
    setScroll((s) => (s.top === top && s.height === height ? s : { top, height }));
  };
  useEffect(() => {
    const element = box.current;
    if (!element) return undefined;
    place();
    const observer = new ResizeObserver(place);
    observer.observe(element);
    return () => observer.disconnect();
  }, [rowHeight]);
  return {
    first: Math.max(0, Math.min(count, Math.floor(scroll.top / rowHeight)) - OVERSCAN),
    last: Math.min(count, Math.ceil((scroll.top + scroll.height) / rowHeight) + OVERSCAN),
    height: scroll.height,
    place,
  };
}

/** heightOf is the ref of an element with a height in pixels. It is set by the object model: a style attribute is refused by the policy. */
export const heightOf = (pixels: number) => (element: HTMLElement | null): void => {
  if (element) element.style.height = `${pixels}px`;
};
