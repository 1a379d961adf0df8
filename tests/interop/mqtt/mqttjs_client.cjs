// scenario.md with `mqtt` from npm; NODE_PATH says where it is.
const { readFileSync } = require('node:fs')
const mqtt = require('mqtt')

const asked = JSON.parse(process.argv[2])
const place = `${asked.user}/in`

// A client; `lasting` ones have a session. `take(n)` waits for so many messages.
async function connect(name, lasting) {
  const client = mqtt.connect({
    protocol: asked.scheme,
    host: asked.host,
    hostname: asked.host,
    port: asked.port,
    path: '/mqtt',
    username: asked.user,
    password: asked.password,
    clientId: name,
    clean: !lasting,
    protocolVersion: asked.version,
    properties: asked.version === 5 ? { sessionExpiryInterval: lasting ? 300 : 0 } : undefined,
    ca: asked.ca ? readFileSync(asked.ca) : undefined,
    reconnectPeriod: 0,
    connectTimeout: 15000,
  })
  const got = []
  let more = () => {}
  client.on('message', (topic, payload, packet) => {
    got.push([topic, payload.toString('hex'), packet.qos, packet.retain])
    more()
  })
  const present = await new Promise((resolve, reject) => {
    client.once('connect', (connack) => resolve(connack.sessionPresent))
    client.once('error', reject)
  })
  const take = (count) =>
    new Promise((resolve) => {
      more = () => got.length >= count && resolve(got.splice(0, count))
      more()
    })
  return { client, present, take }
}

async function main() {
  const said = { present: [] }
  let one = await connect('c-lasting', true)
  said.present.push(one.present)
  said.granted = (await one.client.subscribeAsync(`${place}/+`, { qos: 2 })).map((grant) => grant.qos)
  const octets = Buffer.concat([Buffer.from([...Array(256).keys()]), Buffer.alloc(44)])
  await one.client.publishAsync(`${place}/0`, 'zero', { qos: 0 })
  await one.client.publishAsync(`${place}/1`, 'one', { qos: 1 })
  await one.client.publishAsync(`${place}/2`, octets, { qos: 2, retain: true })
  said.live = (await one.take(3)).sort()
  await one.client.endAsync()
  let other = await connect('c-other', false)
  await other.client.publishAsync(`${place}/3`, 'away1', { qos: 1 })
  await other.client.publishAsync(`${place}/3`, 'away2', { qos: 2 })
  await other.client.endAsync()
  one = await connect('c-lasting', true)
  said.present.push(one.present)
  said.away = await one.take(2)
  await one.client.endAsync()
  other = await connect('c-other', false)
  await other.client.subscribeAsync(`${place}/2`, { qos: 1 })
  said.kept = await other.take(1)
  await other.client.endAsync()
  console.log(JSON.stringify(said))
}

main().catch((error) => {
  console.error(error)
  process.exit(1)
})
