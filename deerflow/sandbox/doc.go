// Package sandbox is where the tools of DeerFlow's agent work: the files of a thread, shown at virtual paths such as /mnt/user-data/outputs, and a shell.
//
// Local uses this machine. File tools reach a thread's folders through os.Root, so neither `..` nor a link leads out of them. Commands of the shell are
// parsed and refused by rules before they run; rules can be evaded, so where the kernel has Landlock, it confines commands to the thread's folders and the
// system's programs as well. Local.Mode says what holds. Without Landlock a shell can do what the server can do.
package sandbox
