// The editor for YAML, CodeMirror, which is loaded when it is used. It lives in a shadow root, where it can bring its own
// styles under a policy that refuses inline ones.

import type { JSX } from 'preact';
import { useEffect, useRef, useState } from 'preact/hooks';
import type { EditorProps } from './codemirror';

/** Editor falls back to a plain field if CodeMirror cannot be loaded. Its value is taken at the beginning, unless it is read only. */
export function Editor(props: EditorProps): JSX.Element {
  const host = useRef<HTMLDivElement>(null);
  const latest = useRef(props);
  latest.current = props;
  const view = useRef<import('./codemirror').Handle | null>(null);
  const [error, setError] = useState('');
  useEffect(() => {
    let gone = false;
    import('./codemirror').then(
      (cm) => {
        if (gone || !host.current) return;
        view.current = cm.open(host.current, () => latest.current);
      },
      () => setError('the editor could not be loaded'),
    );
    return () => {
      gone = true;
      view.current?.close();
    };
  }, [props.readOnly]);
  // While it is edited, the editor has the text: a value that comes back late must not undo what was typed since.
  useEffect(() => (props.readOnly ? view.current?.set(props.value) : undefined), [props.value]);
  if (error) {
    return (
      <textarea
        class="editor"
        aria-label={props.label}
        readOnly={props.readOnly}
        value={props.value}
        onInput={(e) => props.change?.(e.currentTarget.value)}
      />
    );
  }
  return <div class="editor" ref={host} />;
}
