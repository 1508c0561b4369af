import svelte from 'eslint-plugin-svelte';
import ts from 'typescript-eslint';

export default ts.config(
  ...ts.configs.recommended,
  ...svelte.configs.recommended,
  {
    files: ['**/*.svelte', '**/*.svelte.ts'],
    languageOptions: { parserOptions: { parser: ts.parser } },
  },
  {
    rules: {
      // Everything that comes from a trace is text.
      'svelte/no-at-html-tags': 'error',
      'max-lines': ['error', 400],
      'no-console': 'error',
      eqeqeq: 'error',
    },
  },
  { files: ['src/api/types.ts'], rules: { 'max-lines': 'off' } }, // generated
  { ignores: ['node_modules/'] },
);
