// Lets node run the sources: `node --import ./test/typescript.js`. Types are removed by the compiler that checks them; node 20 has no
// type stripping, and none has JSX.

import { register } from 'node:module';

register('./hooks.js', import.meta.url);
