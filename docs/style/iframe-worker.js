// A page that is opened as a file may not start a worker. The search then runs in a hidden frame that looks like one to both sides.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super()
      this.waiting = []
      const frame = document.createElement("iframe")
      frame.hidden = true
      document.documentElement.append(frame)
      this.inner = frame.contentWindow
      // What the worker says is heard here, and runs out of its own call, as a message would.
      this.inner.postMessage = data => setTimeout(() => this.tell(this, data))
      this.inner.importScripts = (...more) => more.reduce((before, one) => before.then(() => this.load(one)), Promise.resolve())
      this.load(new URL(url, location.href)).then(() => {
        this.ready = true
        for (const data of this.waiting) this.tell(this.inner, data)
      })
    }

    load(url) {
      return new Promise(done => {
        const script = this.inner.document.createElement("script")
        script.src = url
        script.onload = done
        this.inner.document.documentElement.append(script)
      })
    }

    tell(target, data) {
      const event = new MessageEvent("message", { data })
      target.dispatchEvent(event)
      const on = target === this ? this.onmessage : null
      if (on) on.call(this, event)
    }

    postMessage(data) {
      if (this.ready) setTimeout(() => this.tell(this.inner, data))
      else this.waiting.push(data)
    }

    terminate() {}
  }
}
