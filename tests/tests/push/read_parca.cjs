// Reads requests of Parca's profile store by the classes that Parca publishes: node read_parca.cjs NODE_MODULES FILE...
//
// Each field must be one of the schema. Prints as JSON the method that takes them, an answer of it in hexadecimal, and of
// each request its series: labels, and the files that the profiles become.

const fs = require("fs");
const path = require("path");
const Module = require("module");

const [modules, ...files] = process.argv.slice(2).map((word) => path.resolve(word));
const within = Module.createRequire(path.join(modules, "x.cjs"));
// The package has modules that Node takes for scripts: all that differs are imports and exports, a line each.
const usual = Module._extensions[".js"];
Module._extensions[".js"] = (module, file) => {
    if (!file.includes("@parca/client")) return usual(module, file);
    const text = fs.readFileSync(file, "utf8");
    const script = text
        .replace(/^import (\{[^}]*\}) from ("[^"]*");$/gm, "const $1 = require($2);")
        .replace(/^export const (\w+) =/gm, "const $1 = exports.$1 =");
    module._compile(script, file);
};
const schema = within("@parca/client/dist/parca/profilestore/v1alpha1/profilestore");
const service = schema.ProfileStoreService;
const method = service.methods.find((method) => method.name === "WriteRaw");
const read = (file) => {
    const request = method.I.fromBinary(fs.readFileSync(file), { readUnknownField: "throw" });
    const series = request.series.map(({ labels, samples }) => ({
        labels: labels.labels.map(({ name, value }) => [name, value]),
        profiles: samples.map(({ rawProfile, executableInfo }, number) => {
            if (executableInfo.length) throw new Error("executable_info without need");
            fs.writeFileSync(`${file}.${number}.pb.gz`, rawProfile);
            return `${file}.${number}.pb.gz`;
        }),
    }));
    return { tenant: request.tenant, normalized: request.normalized, series };
};
const answer = Buffer.from(method.O.toBinary(method.O.create())).toString("hex");
console.log(JSON.stringify({ method: `/${service.typeName}/${method.name}`, answer, requests: files.map(read) }));
