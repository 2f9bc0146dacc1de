// Starts aimock, which imitates providers of language models, and writes its URL to standard error.
import { LLMock } from "@copilotkit/aimock";

const mock = new LLMock({ port: 0 });
// Each dialect takes its own names, and the text is none of the usage.
const usage = { prompt_tokens: 11, completion_tokens: 30, input_tokens: 11, output_tokens: 30, promptTokenCount: 11, candidatesTokenCount: 30 };
mock.onMessage(/.*/, { content: 'The heron waits: {"usage":{"output_tokens":0,"completion_tokens":0}} and fishes.', usage });
await mock.start();
console.error(mock.url);
