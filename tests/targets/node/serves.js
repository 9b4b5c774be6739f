// A web server that answers with what it has computed. It writes "ready" and its port, and ends with 0 after a line on
// standard input.
const http = require('http');

const server = http.createServer((request, response) => {
  let sum = 0;
  for (let n = 0; n < 2000; n++) sum += n * n;
  response.end(String(sum));
});
server.keepAliveTimeout = 600000;
server.listen(0, '127.0.0.1', () => console.log('ready', server.address().port));
process.stdin.once('data', () => process.exit(0));
