// The search reads its index with a request, which browsers do not allow for pages on disk.
if (location.protocol === "file:") document.documentElement.classList.add("from-disk");
