// What the editor needs of CodeMirror: a part of the program that is loaded with the first editor.

import { defaultKeymap, history, historyKeymap, indentWithTab } from '@codemirror/commands';
import { yaml } from '@codemirror/lang-yaml';
import { bracketMatching, foldGutter, foldKeymap, HighlightStyle, indentOnInput, syntaxHighlighting } from '@codemirror/language';
import { highlightSelectionMatches, search, searchKeymap } from '@codemirror/search';
import { EditorState, RangeSetBuilder } from '@codemirror/state';
import {
  Decoration, drawSelection, EditorView, highlightActiveLine, hoverTooltip, keymap, lineNumbers, ViewPlugin, WidgetType,
  type DecorationSet, type ViewUpdate,
} from '@codemirror/view';
import { tags } from '@lezer/highlight';

export interface Handle {
  set(value: string): void;
  close(): void;
}

const colors = HighlightStyle.define([
  { tag: [tags.propertyName, tags.definition(tags.propertyName)], color: 'var(--key)' },
  { tag: [tags.string, tags.content], color: 'var(--string)' },
  { tag: [tags.number, tags.bool, tags.null, tags.keyword], color: 'var(--number)' },
  { tag: [tags.comment, tags.meta], color: 'var(--dim)' },
]);

const theme = EditorView.theme({
  '&': { height: '100%', color: 'var(--text)', backgroundColor: 'var(--field)', fontSize: '12.5px' },
  '.cm-scroller': { fontFamily: 'var(--mono)', lineHeight: '1.5' },
  '.cm-gutters': { backgroundColor: 'var(--field)', color: 'var(--dim)', border: 'none' },
  '.cm-activeLine, .cm-activeLineGutter': { backgroundColor: 'var(--hover)' },
  '.cm-content': { caretColor: 'var(--text)' },
  '.cm-cursor': { borderLeftColor: 'var(--text)' },
  '&.cm-focused': { outline: '2px solid var(--accent)', outlineOffset: '-2px' },
  '&.cm-focused > .cm-scroller > .cm-selectionLayer .cm-selectionBackground, .cm-selectionBackground': {
    backgroundColor: 'var(--selected)',
  },
  '.cm-tooltip, .cm-panels': { backgroundColor: 'var(--panel)', color: 'var(--text)', border: '1px solid var(--line)' },
  '.cm-tooltip': { padding: '2px 8px', borderRadius: '4px' },
  '.cm-panel input, .cm-panel button': { font: 'inherit' },
  '.note': { color: 'var(--dim)', paddingLeft: '3em', fontStyle: 'italic' },
});

class Note extends WidgetType {
  constructor(readonly text: string) {
    super();
  }
  override eq(other: Note): boolean {
    return other.text === this.text;
  }
  override toDOM(): HTMLElement {
    const span = document.createElement('span');
    span.className = 'note';
    span.textContent = this.text;
    return span;
  }
}

function notes(note: (line: number) => string): ViewPlugin<{ decorations: DecorationSet }> {
  const build = (view: EditorView): DecorationSet => {
    const set = new RangeSetBuilder<Decoration>();
    for (const { from, to } of view.visibleRanges) {
      for (let at = from; at <= to; ) {
        const line = view.state.doc.lineAt(at);
        const text = note(line.number - 1);
        if (text) set.add(line.to, line.to, Decoration.widget({ widget: new Note(text), side: 1 }));
        at = line.to + 1;
      }
    }
    return set.finish();
  };
  return ViewPlugin.define(
    (view) => ({
      decorations: build(view),
      update(u: ViewUpdate) {
        if (u.docChanged || u.viewportChanged) this.decorations = build(u.view);
      },
    }),
    { decorations: (v) => v.decorations },
  );
}

export function open(host: HTMLElement, props: () => EditorProps): Handle {
  const first = props();
  const root = host.shadowRoot ?? host.attachShadow({ mode: 'open' });
  const view = new EditorView({
    root,
    parent: root,
    state: EditorState.create({
      doc: first.value,
      extensions: [
        lineNumbers(), foldGutter(), history(), drawSelection(), indentOnInput(), bracketMatching(), highlightActiveLine(),
        highlightSelectionMatches(), search({ top: true }), syntaxHighlighting(colors), yaml(), theme,
        EditorView.contentAttributes.of({ 'aria-label': first.label }),
        EditorState.readOnly.of(first.readOnly ?? false),
        keymap.of([
          { key: 'Mod-s', run: () => (props().save?.(), true) },
          { key: 'Escape', run: (v) => (v.contentDOM.blur(), false) },
          ...defaultKeymap, ...historyKeymap, ...searchKeymap, ...foldKeymap,
          ...(first.readOnly ? [] : [indentWithTab]),
        ]),
        EditorView.updateListener.of((u) => u.docChanged && props().change?.(u.state.doc.toString())),
        ...(first.note ? [notes((line) => props().note?.(line) ?? '')] : []),
        ...(first.hint
          ? [
              hoverTooltip((v, at) => {
                const line = v.state.doc.lineAt(at);
                const text = props().hint?.(line.number - 1);
                if (!text) return null;
                return {
                  pos: line.from,
                  above: true,
                  create: () => {
                    const dom = document.createElement('div');
                    dom.textContent = text;
                    return { dom };
                  },
                };
              }),
            ]
          : []),
      ],
    }),
  });
  return {
    set(value) {
      if (value !== view.state.doc.toString()) {
        view.dispatch({ changes: { from: 0, to: view.state.doc.length, insert: value } });
      }
    },
    close: () => view.destroy(),
  };
}

export interface EditorProps {
  /** The text at the beginning; of a read-only editor, the text. */
  value: string;
  change?: (value: string) => void;
  readOnly?: boolean;
  label: string;
  save?: () => void;
  /** Text that is shown when the pointer is over a line. */
  hint?: ((line: number) => string) | undefined;
  /** Text at the end of a line. */
  note?: ((line: number) => string) | undefined;
}
