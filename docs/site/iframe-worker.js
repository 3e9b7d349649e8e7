/* A page that was opened from a file may start no worker, and the search is one. So there, and only there, it runs in a
   frame that nobody sees, with the messages of a worker. */
if (location.protocol === "file:")
  window.Worker = class extends EventTarget {
    constructor(url) {
      super()
      const frame = document.createElement("iframe")
      frame.hidden = true
      document.body.appendChild(frame)
      this.inside = frame.contentWindow
      this.inside.postMessage = data => this.dispatchEvent(new MessageEvent("message", { data }))
      this.inside.importScripts = (...urls) => Promise.all(urls.map(one => this.load(one)))
      this.ready = this.load(url)
    }
    load(url) {
      return new Promise((done, failed) => {
        const page = this.inside.document
        page.body.appendChild(Object.assign(page.createElement("script"), { src: url, onload: done, onerror: failed }))
      })
    }
    postMessage(data) {
      this.ready.then(() => this.inside.dispatchEvent(new MessageEvent("message", { data })))
    }
    terminate() {}
  }
