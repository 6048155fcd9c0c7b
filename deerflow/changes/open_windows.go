package changes

// nonblock: files of Windows do not wait to be opened.
const nonblock = 0
