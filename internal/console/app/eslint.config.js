// What the linter checks beside the compiler: all strict and stylistic rules of typescript-eslint, with those that know types.

import tseslint from 'typescript-eslint';

export default tseslint.config(
  { ignores: ['node_modules'] },
  {
    files: ['**/*.ts', '**/*.tsx'],
    extends: [tseslint.configs.strictTypeChecked, tseslint.configs.stylisticTypeChecked],
    languageOptions: { parserOptions: { projectService: true } },
    linterOptions: { reportUnusedDisableDirectives: 'error' },
    rules: {
      // Handlers are arrow functions whose result nobody reads.
      '@typescript-eslint/no-confusing-void-expression': ['error', { ignoreArrowShorthand: true, ignoreVoidOperator: true }],
      '@typescript-eslint/no-empty-function': ['error', { allow: ['arrowFunctions'] }],
      '@typescript-eslint/no-unused-vars': ['error', { argsIgnorePattern: '^_', varsIgnorePattern: '^_' }],
      // Labels, annotations and other members of objects are maps.
      '@typescript-eslint/no-dynamic-delete': 'off',
      // An empty text is no text.
      '@typescript-eslint/prefer-nullish-coalescing': ['error', { ignorePrimitives: true }],
      '@typescript-eslint/restrict-template-expressions': ['error', { allowNumber: true, allowBoolean: true }],
    },
  },
  {
    files: ['test/**/*.ts'],
    rules: {
      // node:test awaits its tests.
      '@typescript-eslint/no-floating-promises': ['error', { allowForKnownSafeCalls: [{ from: 'package', name: 'test', package: 'node:test' }] }],
      // What is not there fails the test.
      '@typescript-eslint/no-non-null-assertion': 'off',
    },
  },
);
