/* init.c - the only program of the emulated machine (run.sh): runs argv from /args (one a line) and sends what it prints to
 * port 0xE9, which Bochs shows, then turns the machine off. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/io.h>
#include <sys/mount.h>
#include <sys/reboot.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static void say(const char *text, size_t length) {
    for (size_t i = 0; i < length; i++) outb((unsigned char)text[i], 0xE9);
}

int main(void) {
    char *argv[64] = {0}, line[256], buffer[512], last[64];
    int argc = 0, pipes[2], status = 0;
    if (ioperm(0xE9, 1, 1)) reboot(RB_POWER_OFF);
    mkdir("/proc", 0755), mkdir("/dev", 0755), mkdir("/tmp", 0755);
    mount("proc", "/proc", "proc", 0, NULL);
    mount("dev", "/dev", "devtmpfs", 0, NULL);
    mkdir("/dev/shm", 0755);
    mount("tmp", "/dev/shm", "tmpfs", 0, NULL);
    FILE *args = fopen("/args", "r");
    while (args && argc < 63 && fgets(line, sizeof line, args)) {
        line[strcspn(line, "\n")] = 0;
        argv[argc++] = strdup(line);
    }
    if (argc == 0 || pipe(pipes)) reboot(RB_POWER_OFF);
    pid_t child = fork();
    if (child == 0) {
        dup2(pipes[1], 1), dup2(pipes[1], 2);
        close(pipes[0]), close(pipes[1]);
        execv(argv[0], argv);
        _exit(127);
    }
    close(pipes[1]);
    for (ssize_t n; (n = read(pipes[0], buffer, sizeof buffer)) > 0;) say(buffer, (size_t)n);
    waitpid(child, &status, 0);
    int n = snprintf(last, sizeof last, "\nEMULATED EXIT %d\n", WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
    say(last, (size_t)n);
    reboot(RB_POWER_OFF);
    return 0;
}
