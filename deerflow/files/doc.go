// Package files keeps the files of threads, in DeerFlow's folders:
//
//	{home}/users/{user}/threads/{thread}/user-data/{workspace,uploads,outputs}
//
// An agent knows them as /mnt/user-data/…. Each thread is opened as an os.Root, so that no name, link or race leads out of its folder.
package files
