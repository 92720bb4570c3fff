/* wok.c - the `wok` command: picks the sub-command. */
#define _POSIX_C_SOURCE 200809L
#include "cmd.h"

#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

static const cmd commands[] = {
#define CMD(name, usage, text, more) {#name, usage, text, cmd_##name},
#include "cmd.def"
#undef CMD
};
enum { COMMAND_COUNT = sizeof commands / sizeof *commands };

static void help(FILE *out) {
    fprintf(out, "usage: wok COMMAND ...\n\n"
                 "wok runs BERT, DistilBERT, ResNet-18, MobileNetV2 and their kin from ONNX and safetensors files.\n\n"
                 "commands:\n");
    for (int i = 0; i < COMMAND_COUNT; i++)
        fprintf(out, "  %-11s %-40s %s\n", commands[i].name, commands[i].usage, commands[i].text);
    fprintf(out, "\n`wok COMMAND --help` lists a command's options. `wok --version` prints the version.\n\n"
                 "try:\n"
                 "  wok info model.onnx                          what a file holds\n"
                 "  wok run model.onnx -i x=x.npy -o out         run it; out/NAME.npy gets each output\n"
                 "  wok explain model.onnx                       which kernels run, and why\n"
                 "  wok embed minilm/ 'a cat' 'a dog' 'a car'    how alike sentences are\n"
                 "  wok classify digits.onnx picture.png         what a picture shows\n");
}

/* Files that wok opens must not become stdout or stderr where the caller closed those: "/dev/null", opened the other way
 * round, keeps the number taken and every use of it an error. */
static void occupy_standard_files(void) {
    for (int fd = 0; fd <= 2; fd++)
        if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", fd == 0 ? O_WRONLY : O_RDONLY) < 0) _exit(1);
}

static int dispatch(int argc, char **argv) {
    if (argc < 2) return cmd_usage(NULL, "a command is wanted, such as `wok info model.onnx`");
    const char *name = argv[1];
    if (!strcmp(name, "--help") || !strcmp(name, "-h") || !strcmp(name, "help")) {
        help(stdout);
        return 0;
    }
    if (!strcmp(name, "--version")) {
        printf("wok %s\n", wok_version());
        return 0;
    }
    for (int i = 0; i < COMMAND_COUNT; i++)
        if (!strcmp(name, commands[i].name)) return commands[i].run(argc - 1, argv + 1);
    return cmd_usage(NULL, "there is no command `%s`", name);
}

int main(int argc, char **argv) {
    occupy_standard_files();
    signal(SIGPIPE, SIG_IGN); /* a closed pipe is an error of writing, told like any other */
    return cmd_finish(dispatch(argc, argv));
}
